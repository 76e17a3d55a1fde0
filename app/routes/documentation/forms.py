"""Write the forms that work without scripts: one for each operation that takes images.

The forms are made from the OpenAPI document. Browsers show the forms where scripts are off.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

BESIDE_NAME = "x-beside-name"
"""Key of options that belong to single filters; the forms and the reference omit these options."""


def forms(document: Mapping[str, Any]) -> str:
    """Return the forms alone, under the names of their endpoints, as a part of another page."""
    found = (
        (path, _form(path, operation))
        for path, operations in document["paths"].items()
        for operation in operations.values()
    )
    return "".join(
        f"<section><h3>{escape(path[1:].capitalize())}</h3>{form}</section>"
        for path, form in found
        if form
    )


def _form(path: str, operation: Mapping[str, Any]) -> str:
    """Return a form with a file and the options that have a default or an example.

    It is empty for an operation that takes no images as `files`, such as `POST /jobs`.
    """
    body = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data")
    if body is None or "files" not in body["schema"]["properties"]:
        return ""
    fields = "".join(_fields(body["schema"]["properties"]))
    return (
        f'<form action="{escape(path[1:])}" method="post" enctype="multipart/form-data">'
        '<label>files <input type="file" name="files" multiple required></label>'
        f"{fields}<button>Try it</button></form>"
    )


def _fields(properties: Mapping[str, Schema]) -> Iterator[str]:
    for name, schema in properties.items():
        if BESIDE_NAME in schema:
            continue
        value = schema["examples"][0] if "examples" in schema else schema.get("default")
        if value is not None:
            text = escape(str(value).lower() if isinstance(value, bool) else str(value))
            yield f'<label>{escape(name)} <input name="{escape(name)}" value="{text}"></label>'
