"""Serve the documentation: a page at `/docs`, and `/openapi.json` for programs."""

import json

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from app.routes.documentation.docs_page import POLICY, page
from app.routes.documentation.openapi import complete
from app.service import ServiceOf
from workers.filters.registry import FILTERS

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request, service: ServiceOf) -> HTMLResponse:
    """Show every endpoint with its options and a form to try it."""
    kept = service.bodies.get("docs")
    if kept is None:
        shown = page(request.app.openapi(), FILTERS)
        kept = service.bodies["docs"] = (None, shown.encode())
    return HTMLResponse(kept[1], headers={"Content-Security-Policy": POLICY})


@router.get("/openapi.json")
async def openapi(request: Request, service: ServiceOf) -> Response:
    """Return the OpenAPI document."""
    kept = service.bodies.get("openapi")
    if kept is None:
        document = complete(request.app.openapi())
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        kept = service.bodies["openapi"] = (None, text.encode())
    return Response(kept[1], media_type="application/json")
