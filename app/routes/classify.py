"""`POST /classify`: labels for one or many images."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types
from app.http.negotiation import Accept
from app.http.options import read
from app.routes.documentation.openapi import LABELS
from app.routes.documentation.request_documents import classify_document
from app.routes.images.answering import CheckParts, negotiated
from app.routes.images.handler import handle
from app.routes.images.image_route import ImageRoute
from app.routes.images.network_choice import classification
from app.service import Computing, Service
from models.api.schemas import ClassifyOptions
from models.domain.errors import WeightsMissing
from workers.operations import Classify

router = APIRouter(tags=["images"], route_class=ImageRoute)

_OFFERS = (media_types.JSON, *media_types.JSON_LINES, media_types.EVENTS)


@router.post(
    "/classify", operation_id="classify", responses=LABELS, openapi_extra=classify_document()
)
async def classify(request: Request) -> Response:
    """Labels for 1…N images: raw body, multipart/form-data or JSON; uploads, data URIs, URLs."""
    return await handle(request, _wanted, _form)


def classify_wanted(given: Mapping[str, Any], computing: Computing) -> Classify:
    """Return what the options ask for; raises WeightsMissing without a model."""
    wanted = classification(read(ClassifyOptions, given), computing)
    if isinstance(wanted, WeightsMissing):
        raise wanted
    return wanted


def _wanted(
    given: Mapping[str, Any], _accept: Accept, service: Service, _check: CheckParts
) -> Classify:
    return classify_wanted(given, service.computing())


def _form(accept: Accept, _single: bool) -> str:
    return negotiated(accept, _OFFERS, "/classify answers")
