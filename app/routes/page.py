"""Serve the page for people at `/` and `/docs`, and its scripts and styles below `/page/`.

At `/docs` the page begins with the reference, which its scripts write from the OpenAPI document.

Browsers keep the files and ask by their ETag whether they have changed.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from app.http.conditional import matches
from app.page.files import INDEX, POLICY, PageFile, files, index
from app.routes.documentation.forms import forms
from app.service import ServiceOf

router = APIRouter(include_in_schema=False)

_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@router.get("/")
@router.get("/docs")
async def page(request: Request, service: ServiceOf) -> Response:
    """Show the page where images are labelled and filtered, and the reference."""
    kept = service.bodies.get("page")
    if kept is None:
        made = index(forms(request.app.openapi()))
        kept = service.bodies["page"] = (made, made.body)
    found = kept[0]
    assert isinstance(found, PageFile)
    return _sent(found, request)


@router.get("/page/{name}")
async def file(name: str, request: Request) -> Response:
    """Send one file of the page."""
    found = files().get(name)
    if found is None or name == INDEX:
        raise HTTPException(404)
    return _sent(found, request)


def _sent(found: PageFile, request: Request) -> Response:
    """Return the file, or 304 if the browser has it."""
    headers = _HEADERS | {"ETag": found.etag}
    if matches(request.headers.get("if-none-match"), found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)
