"""Serve the page for people at `/` and `/docs`, and its scripts and styles below `/page/`.

Browsers get the files of `app/page/static/` without a build step; they keep the files and
ask by their ETag whether they have changed. At `/docs` the page begins with the reference, which
its scripts write from the OpenAPI document. Only the HTML is completed, by forms that work without
a script, a form for each operation that takes images.
"""

import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from app.http.negotiation import matches
from app.service import ServiceOf

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
async def page(request: Request, service: ServiceOf) -> Response:
    """Show the page where images are labelled and filtered, and the reference."""
    kept = service.bodies.get("page")
    if kept is None:
        html = (FOLDER / INDEX).read_text().replace(_FORMS, forms(request.app.openapi())).encode()
        kept = service.bodies["page"] = (f'"{hashlib.sha256(html).hexdigest()[:32]}"', html)
    etag, body = str(kept[0]), kept[1]
    headers = _HEADERS | {"ETag": etag}
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="text/html")


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
