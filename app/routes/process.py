"""`POST /process`: labels and filtered versions of one or many images, each decoded once."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types
from app.http.negotiation import Accept
from app.http.options import read_with_encoding
from app.intake.filter_options import listed_versions, versions_of
from app.intake.wanted import Parts
from app.routes.documentation.openapi import PARTS
from app.routes.documentation.request_documents import process_document
from app.routes.images.answering import CheckParts, negotiated
from app.routes.images.handler import handle
from app.routes.images.image_route import ImageRoute
from app.routes.images.network_choice import classification
from app.service import Computing, Service
from models.api.schemas import ProcessOptions
from models.domain.errors import FieldError, InvalidParameter, WeightsMissing

router = APIRouter(tags=["images"], route_class=ImageRoute)

_OFFERS = (media_types.JSON, *media_types.STREAMS)


@router.post("/process", operation_id="process", responses=PARTS, openapi_extra=process_document())
async def process(request: Request) -> Response:
    """Labels and any number of filtered versions of 1…N images, each decoded once.

    Each of `versions` is what POST /filter takes. Labels and versions fail alone: a record is then
    "partial". At the door and in the limit of a request each of them counts as one image.
    """
    return await handle(request, _wanted, _form)


def process_wanted(
    given: Mapping[str, Any], accept: Accept, computing: Computing, check: CheckParts
) -> Parts:
    """Return the parts that the options ask for; raises InvalidParameter, and what `check` raises
    for their number.

    Without weights only the labels fail, unless nothing else is wanted.
    """
    options, encoding = read_with_encoding(ProcessOptions, given)
    listed = listed_versions(options.versions)
    check(options.labels + len(listed))
    labels = classification(options, computing) if options.labels else None
    wanted = Parts(labels, versions_of(listed, encoding, accept))
    if not wanted.n_parts:
        wrong = FieldError("versions", "without labels at least one version is needed")
        raise InvalidParameter(wrong.message, [wrong])
    if isinstance(labels, WeightsMissing) and not wanted.versions:
        raise labels
    return wanted


def _wanted(given: Mapping[str, Any], accept: Accept, service: Service, check: CheckParts) -> Parts:
    return process_wanted(given, accept, service.computing(), check)


def _form(accept: Accept, _single: bool) -> str:
    return negotiated(accept, _OFFERS, "/process answers")
