"""`POST /process`: labels and filtered versions of one or many images, each decoded once."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types, negotiation
from app.http.options import read_with_encoding
from app.http.request_lifetime import before
from app.intake.filter_options import versions_of
from app.intake.request_items import collect
from app.intake.wanted import Wanted
from app.pipeline.timings import Timings
from app.responses import complete, streams
from app.responses.records import record
from app.routes.image_route import ImageRoute, permit_of
from app.routes.openapi import PARTS, process_document
from app.service import Service, service_of
from models.api.schemas import ProcessOptions
from models.domain.errors import (
    FieldError,
    InvalidParameter,
    NotAcceptable,
    TooLarge,
    WeightsMissing,
)
from models.settings import Settings
from workers.operations import Classify, FunctionToApply

router = APIRouter(tags=["images"], route_class=ImageRoute)

_OFFERS = (media_types.JSON, *media_types.STREAMS)


@router.post("/process", operation_id="process", responses=PARTS, openapi_extra=process_document())
async def process(request: Request) -> Response:
    """Labels and any number of filtered versions of 1…N images, each decoded once.

    Each of `versions` is what POST /filter takes. Labels and versions fail alone: a record is then
    "partial". At the door and in the limit of a request each of them counts as one image.
    """
    service, permit = service_of(request), permit_of(request)
    reading = Timings()
    with reading.measure("intake"):
        intake = await before(permit.deadline, collect(request, permit, service.settings))
    header = request.headers.get("accept")
    wanted = _wanted(intake.options, header, service)
    permit.grow(_count(len(intake.items), wanted, service.settings) - len(intake.items), 0)
    permit.expect(len(intake.items), *wanted.kinds)
    chosen = negotiation.best(header, _OFFERS)
    if chosen is None:
        raise NotAcceptable(f"/process answers {', '.join(_OFFERS)}")
    works = [partial(service.pipeline.process, item, wanted, permit) for item in intake.items]
    headers = complete.filter_headers()
    model = service.model if isinstance(wanted.labels, Classify) else None
    labels, made_by = (model.labels, model.record) if model else (None, None)
    present = partial(record, labels=labels, request=request)
    if made_by:
        headers |= complete.model_headers(made_by)
    if chosen == media_types.JSON:
        return await complete.whole(request, works, reading, present, headers, made_by)
    return streams.streamed(request, works, chosen, present, headers, made_by)


def _wanted(given: Mapping[str, Any], header: str | None, service: Service) -> Wanted:
    """Without weights the labels fail alone, unless nothing else is wanted."""
    options, encoding = read_with_encoding(ProcessOptions, given)
    labels: Classify | WeightsMissing | None = None
    if options.labels:
        labels = Classify(options.top_k, FunctionToApply(options.function_to_apply))
        if service.model is None:
            labels = service.computing().missing
    wanted = Wanted(labels, versions_of(options.versions, encoding, header))
    if not wanted.n_parts:
        wrong = FieldError("versions", "without labels at least one version is needed")
        raise InvalidParameter(wrong.message, [wrong])
    if isinstance(labels, WeightsMissing) and not wanted.versions:
        raise labels
    return wanted


def _count(n_items: int, wanted: Wanted, settings: Settings) -> int:
    """What the request counts as, in images; raises TooLarge."""
    count, most = n_items * wanted.n_parts, settings.max_images_per_request
    if count > most:
        raise TooLarge(
            f"{n_items} images with {wanted.n_parts} labels or versions each count as {count}; "
            f"one request takes {most} (DARKROOM_MAX_IMAGES_PER_REQUEST), send several"
        )
    return count
