"""The steps of every request with images: what is wanted, its cost, its work, its response."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from app.admission import Permit
from app.http import negotiation
from app.http.request_lifetime import before, disconnected
from app.intake.request_items import collect
from app.intake.wanted import ImageRequest, Wanted
from app.pipeline.timings import Timings
from app.responses.render import render
from app.responses.rendering import Rendering, headers_of
from app.responses.vectors import VectorStyle
from app.routes.entity_tags import caching_headers, tagged, wants_tag
from app.routes.image_route import permit_of
from app.service import Service, service_of
from models.domain.errors import NotAcceptable, TooLarge
from models.settings import Settings

WantedOf = Callable[[Mapping[str, Any], str | None, Service], Wanted]
"""Map the options of a request and its Accept header to what is wanted of each image."""

FormOf = Callable[[str | None, bool], str]
"""Map the Accept header, and whether there is exactly one image, to the form of the response."""


async def handle(request: Request, wanted_of: WantedOf, form_of: FormOf) -> Response:
    """Answer an admitted request; everything about it is decided before its work starts."""
    service, permit, timings = service_of(request), permit_of(request), Timings()
    with timings.measure("intake"):
        intake = await before(permit.deadline, collect(request, permit, service.settings))
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    accept = request.headers.get("accept")
    asked = ImageRequest(intake.items, wanted_of(intake.options, accept, service))
    _charge(asked, permit, service.settings)
    form = form_of(accept, intake.single)
    rendering = _rendering(request, asked, service, timings, intake.options, form)
    if wants_tag(request, form, service.settings):
        tags = tagged(request, asked, rendering, service, intake.options, form)
        asked, rendering, unchanged = await tags
        if unchanged is not None:
            return unchanged
    answers = service.pipeline.answers(asked, permit, partial(disconnected, request))
    return await render(answers, form, rendering)


def negotiated(accept: str | None, offers: tuple[str, ...], refusal: str) -> str:
    """Return the offer that Accept likes best; raises NotAcceptable that begins with `refusal`."""
    chosen = negotiation.best(accept, offers)
    if chosen is None:
        raise NotAcceptable(f"{refusal} {', '.join(offers)}")
    return chosen


def _charge(asked: ImageRequest, permit: Permit, settings: Settings) -> None:
    """Count the parts of all images and the work they will cost; raises TooLarge and Overloaded."""
    n_items, count, most = len(asked.items), asked.count, settings.max_images_per_request
    if count > most:
        raise TooLarge(
            f"{n_items} images with {count // n_items} labels or versions each count as {count}; "
            f"one request takes {most} (DARKROOM_MAX_IMAGES_PER_REQUEST), send several"
        )
    permit.grow(count - n_items, 0)
    permit.expect(n_items, *asked.kinds)


def _rendering(
    request: Request,
    asked: ImageRequest,
    service: Service,
    timings: Timings,
    options: Mapping[str, Any],
    form: str,
) -> Rendering:
    network = asked.network
    model = None if network is None else service.computing().chosen(network).model
    record, labels = (None, None)
    if model is not None:
        record, labels = model.record_for("model" in options), model.labels
    headers = headers_of(asked.wanted, record)
    style, good = VectorStyle.of(options), caching_headers(form, service.settings)
    return Rendering(request, headers, timings, record, labels, style, good)
