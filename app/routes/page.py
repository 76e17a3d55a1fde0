"""Serve the page for people at `/` and `/docs`, and its scripts and styles below `/page/`.

Browsers get the files of `app/page/static/` without a build step; they keep the files and
ask by their ETag whether they have changed. At `/docs` the page begins with the reference, which
its scripts write from the OpenAPI document. Only the HTML is completed, by forms that work without
a script, a form for each operation that takes images.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from app.http.negotiation import names

FOLDER = Path(__file__).parents[1] / "page" / "static"

INDEX = "index.html"

_FORMS = "<!--FORMS-->"
"""The place of the forms in the HTML."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""The Content-Security-Policy: nothing is loaded from elsewhere, no script stands in the HTML, and
scripts cannot turn text into markup."""


router = APIRouter(include_in_schema=False)

_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


_files = StaticFiles(directory=FOLDER)


@router.get("/")
@router.get("/docs")
async def page(request: Request) -> Response:
    """Show the page where images are labelled and filtered, and the reference."""
    etag, body = _completed(request.app)
    headers = _HEADERS | {"ETag": etag}
    if names(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="text/html")


@lru_cache(1)
def _completed(app: FastAPI) -> tuple[str, bytes]:
    """Return the page with its forms, which is made once, and its ETag."""
    html = (FOLDER / INDEX).read_text().replace(_FORMS, forms(app.openapi())).encode()
    return f'"{hashlib.sha256(html).hexdigest()[:32]}"', html


@router.get("/page/{name}")
async def file(name: str, request: Request) -> Response:
    """Send a whole file of the page, whatever range is asked for, or 304 if the browser has it."""
    if name == INDEX:
        raise HTTPException(404)
    scope = request.scope  # which the response reads too, after this function
    scope["headers"] = [each for each in scope["headers"] if each[0] != b"range"]
    found = await _files.get_response(name, scope)
    found.headers.update(_HEADERS | {"Accept-Ranges": "none"})
    return found


Schema = Mapping[str, Any]

BESIDE_NAME = "x-beside-name"
"""Key of options that belong to single filters; the forms and the reference omit these options."""


def forms(document: Mapping[str, Any]) -> str:
    """Return the forms alone, under the names of their endpoints, as a part of another page.

    A form has files, and the options that have a default or an example. An operation that takes
    no images as `files`, such as `POST /jobs`, has none.
    """
    made = ""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("multipart/form-data", {}).get("schema", {})
            if "files" in schema.get("properties", {}):
                name, fields = escape(path[1:]), "".join(_fields(schema["properties"]))
                made += (
                    f'<section><h3>{name.capitalize()}</h3><form action="{name}" method="post" '
                    'enctype="multipart/form-data">'
                    '<label>files <input type="file" name="files" multiple required></label>'
                    f"{fields}<button>Try it</button></form></section>"
                )
    return made


def _fields(properties: Mapping[str, Schema]) -> Iterator[str]:
    for name, schema in properties.items():
        if BESIDE_NAME in schema:
            continue
        value = schema["examples"][0] if "examples" in schema else schema.get("default")
        if value is not None and schema.get("format") == "binary":
            yield f'<label>{name} <input type="file" name="{name}" required></label>'
        elif value is not None:
            text = escape(str(value).lower() if isinstance(value, bool) else str(value))
            yield f'<label>{escape(name)} <input name="{escape(name)}" value="{text}"></label>'
