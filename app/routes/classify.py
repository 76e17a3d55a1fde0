"""`POST /classify`: labels for one or many images."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types, negotiation
from app.http.options import read
from app.http.request_lifetime import before
from app.intake.request_items import collect
from app.pipeline.timings import Timings
from app.responses import complete, streams
from app.responses.records import record
from app.routes.image_route import ImageRoute, permit_of
from app.routes.openapi import LABELS, classify_document
from app.service import service_of
from models.api.schemas import ClassifyOptions
from models.domain.errors import NotAcceptable
from workers.operations import Classify, FunctionToApply

router = APIRouter(tags=["images"], route_class=ImageRoute)

_OFFERS = (media_types.JSON, *media_types.JSON_LINES, media_types.EVENTS)


@router.post(
    "/classify", operation_id="classify", responses=LABELS, openapi_extra=classify_document()
)
async def classify(request: Request) -> Response:
    """Labels for 1…N images: raw body, multipart/form-data or JSON; uploads, data URIs, URLs."""
    service, permit = service_of(request), permit_of(request)
    reading = Timings()
    with reading.measure("intake"):
        intake = await before(permit.deadline, collect(request, permit, service.settings))
    operation = _operation(intake.options)
    if service.model is None:
        raise service.computing().missing
    permit.expect(len(intake.items), operation.batch_key)
    works = [partial(service.pipeline.classify, item, operation, permit) for item in intake.items]
    model, labels = service.model.record, service.model.labels
    chosen = negotiation.best(request.headers.get("accept"), _OFFERS)
    if chosen is None:
        raise NotAcceptable(f"/classify answers {', '.join(_OFFERS)}")
    headers = complete.model_headers(model)
    present = partial(record, labels=labels, request=request)
    if chosen == media_types.JSON:
        return await complete.whole(request, works, reading, present, headers, model)
    return streams.streamed(request, works, chosen, present, headers, model)


def _operation(given: Mapping[str, Any]) -> Classify:
    options = read(ClassifyOptions, given)
    return Classify(options.top_k, FunctionToApply(options.function_to_apply))
