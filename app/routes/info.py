"""`POST /info`: what one or many image files contain."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types
from app.http.negotiation import Accept
from app.http.options import read
from app.intake.wanted import Describe
from app.routes.documentation.openapi import DESCRIPTIONS
from app.routes.documentation.request_documents import info_document
from app.routes.images.answering import CheckParts, negotiated
from app.routes.images.handler import handle
from app.routes.images.image_route import ImageRoute
from app.service import Service
from models.api.schemas import InfoOptions

router = APIRouter(tags=["images"], route_class=ImageRoute)

_OFFERS = (media_types.JSON, *media_types.JSON_LINES, media_types.EVENTS)


@router.post("/info", operation_id="info", responses=DESCRIPTIONS, openapi_extra=info_document())
async def info(request: Request) -> Response:
    """Format, size, orientation, EXIF, colour profile and dominant colour of 1…N images."""
    return await handle(request, _wanted, _form)


def _wanted(
    given: Mapping[str, Any], _accept: Accept, _service: Service, _check: CheckParts
) -> Describe:
    return Describe(read(InfoOptions, given).colour)


def _form(accept: Accept, _single: bool) -> str:
    return negotiated(accept, _OFFERS, "/info answers")
