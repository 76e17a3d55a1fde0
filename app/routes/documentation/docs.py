"""Serve the OpenAPI document at `/openapi.json`, for programs and for the reference of the page."""

import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.routes.documentation.openapi import complete
from app.service import ServiceOf

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request, service: ServiceOf) -> Response:
    """Return the OpenAPI document."""
    kept = service.bodies.get("openapi")
    if kept is None:
        document = complete(request.app.openapi())
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        kept = service.bodies["openapi"] = (None, text.encode())
    return Response(kept[1], media_type="application/json")
