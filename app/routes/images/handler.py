"""The steps of every request with images: what is wanted, its cost, its work, its response."""

from collections.abc import Callable
from functools import partial

from fastapi import Request
from fastapi.responses import Response

from app.admission import Permit
from app.http.departure import ClientLeft
from app.http.headers import content_type, header
from app.http.negotiation import Accept, parse
from app.http.request_lifetime import before
from app.intake.json_items import in_parsing_thread
from app.intake.request_items import collect
from app.intake.stream import is_stream
from app.intake.wanted import ImageRequest
from app.pipeline.results.timings import Timings
from app.responses.render import render
from app.routes.images.answering import WantedOf, are_long, rendering_of
from app.routes.images.entity_tags import tagged, wants_tag
from app.routes.images.image_route import permit_of
from app.routes.images.stream_handler import stream_answered
from app.service import service_in
from models.domain.errors import TooLarge
from models.settings import Settings

FormOf = Callable[[Accept, bool], str]
"""Map the Accept header, and whether there is exactly one image, to the form of the response."""


async def handle(request: Request, wanted_of: WantedOf, form_of: FormOf) -> Response:
    """Answer an admitted request; everything about it is decided before its work starts.

    An Accept header that is too long is refused before the body is read.
    """
    accept = parse(header(request.scope, b"accept"))
    if is_stream(content_type(request.scope)):
        return await stream_answered(request, wanted_of, accept)
    service, permit, timings = service_in(request.scope), permit_of(request), Timings()
    with timings.measure("intake"):
        intake = await before(permit.deadline, collect(request, permit, service.settings))
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    check = partial(_check_parts, len(intake.items), service.settings)
    decide = partial(wanted_of, intake.options, accept, service, check)
    if are_long(intake.options):
        wanted = await before(permit.deadline, in_parsing_thread(decide))
    else:
        wanted = decide()
    asked = ImageRequest(intake.items, wanted)
    _charge(asked, permit, service.settings.max_pixels)
    form = form_of(accept, intake.single)
    rendering = rendering_of(request, asked, service, timings, intake.options, form)
    if wants_tag(request, form, service.settings):
        tags = tagged(request, asked, rendering, service, intake.options, form)
        asked, rendering, unchanged = await tags
        if unchanged is not None:
            return unchanged
    answers = service.pipeline.answers(asked, permit, ClientLeft(request))
    return await render(answers, form, rendering)


def _check_parts(n_items: int, settings: Settings, parts: int) -> None:
    """Raise TooLarge if a request may not have `n_items` images of this number of parts."""
    count, most = n_items * parts, settings.max_images_per_request
    if count > most:
        raise TooLarge(
            f"{n_items} images with {parts} labels or versions each count as {count}; "
            f"one request takes {most} (DARKROOM_MAX_IMAGES_PER_REQUEST), send several"
        )


def _charge(asked: ImageRequest, permit: Permit, most_pixels: int) -> None:
    """Count the parts of all images and the work they will cost; raises Overloaded."""
    n_items, count = len(asked.items), asked.count
    if count > n_items:
        permit.grow(count - n_items, 0)
    permit.expect(asked.kinds, asked.sizes(most_pixels))
