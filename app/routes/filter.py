"""`POST /filter`: one or many images through a chain of filters."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types
from app.http.negotiation import Accept
from app.http.options import read_with_encoding
from app.intake.filter_options import chain_of, encoded_there, encoding_of
from app.intake.output_format import output_format
from app.intake.wanted import Output, Version
from app.routes.documentation.openapi import IMAGES
from app.routes.documentation.request_documents import filter_document
from app.routes.images.answering import CheckParts, negotiated
from app.routes.images.handler import handle
from app.routes.images.image_route import ImageRoute
from app.service import Service
from models.api.schemas import FilterOptions
from models.codec import ENCODABLE

router = APIRouter(tags=["images"], route_class=ImageRoute)

_SEVERAL = (media_types.ZIP, media_types.MULTIPART, *media_types.JSON_LINES, media_types.EVENTS)


@router.post(
    "/filter",
    operation_id="filter",
    response_class=Response,
    responses=IMAGES,
    openapi_extra=filter_document(),
)
async def filter_images(request: Request) -> Response:
    """1…N images through a chain of filters: one image back as bytes, several as a ZIP."""
    return await handle(request, _wanted, _form)


def filter_wanted(given: Mapping[str, Any], accept: Accept) -> Version:
    """Return the filters and the output that the options and Accept ask for."""
    options, asked = read_with_encoding(FilterOptions, given)
    encoding = encoding_of(asked)
    operation = encoded_there(chain_of(options), encoding, asked.format)
    return Version(operation, Output(output_format(asked.format, accept, strict=True), encoding))


def _wanted(
    given: Mapping[str, Any], accept: Accept, _service: Service, _check: CheckParts
) -> Version:
    return filter_wanted(given, accept)


def _form(accept: Accept, single: bool) -> str:
    """Return the form of the response: one image is its bytes unless Accept names a stream."""
    if not single:
        return negotiated(accept, _SEVERAL, "several images are answered as")
    named = [kind for kind in media_types.STREAMS if accept.names(kind)]
    liked = accept.best([*named, *(each.media_type for each in ENCODABLE)])
    return liked if liked in named else media_types.IMAGE
