"""Write the documentation page: every endpoint, its options, and a form to try it with a file.

It is made from the OpenAPI document: one HTML text without scripts that loads nothing from other
servers, so it works without access to the internet.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

BESIDE_NAME = "x-beside-name"
"""Key of options that belong to single filters; the page omits them, the filters' page has them."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""The Content-Security-Policy by which browsers enforce that nothing else is loaded."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
section { border-top: 1px solid #ccc; margin-top: 2em }
table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .2em 1em .2em 0 }
form { background: #f4f4f4; padding: 1em; margin-top: 1em }
label { display: block; margin-bottom: .5em }
input:not([type]) { width: 40em; max-width: 100%; font-family: monospace }
"""


def page(document: Mapping[str, Any], filters: Iterable[str]) -> str:
    """Return the page of an OpenAPI `document`, with links to the pictures of `filters`."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    pictures = ", ".join(_link(f"filters/{name}/thumbnail", name) for name in filters)
    sections = [
        _section(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>{escape(info['summary'])} For programs: {_link('openapi.json', 'openapi.json')}.</p>"
        f"<p>What each filter does: {pictures}.</p>{''.join(sections)}</body></html>"
    )


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


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    every = operation.get("parameters", [])
    parameters = [each for each in every if BESIDE_NAME not in each["schema"]]
    name = f"{method.upper()} {path}"
    # What a server may not offer (501) is not linked: the page is the same on all servers.
    linked = method == "get" and "{" not in path and "501" not in operation.get("responses", {})
    return (
        f"<section><h2>{_link(path[1:], name) if linked else escape(name)}</h2>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        f"{_table(parameters)}{_form(path, operation)}</section>"
    )


def _table(parameters: list[Mapping[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = (
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(_takes(each['schema']))}"
        f"<td>{escape(each.get('description', ''))}"
        for each in parameters
    )
    return f"<table><tr><th>option<th>takes<th>{''.join(rows)}</table>"


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


def _takes(schema: Schema) -> str:
    """Describe the values of a schema: `integer from 1 to 100`, `one of strip, keep`."""
    kinds = (each for each in schema.get("anyOf", [schema]) if each.get("type") != "null")
    return " or ".join(_kind(each) for each in kinds)


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "minimum" in schema and "maximum" not in schema:
        return f"{schema['type']} of at least {schema['minimum']}"
    if "minimum" in schema:
        return f"{schema['type']} from {schema['minimum']} to {schema['maximum']}"
    return str(schema["type"])


def _link(address: str, text: str) -> str:
    """Return a relative link, which also works behind a proxy that adds a prefix."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'
