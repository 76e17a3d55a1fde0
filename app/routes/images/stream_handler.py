"""Answer a body of any length: each image has its own permit, deadline and record."""

from functools import partial

from fastapi import Request
from fastapi.responses import Response

from app.admission.stream_permits import StreamPermits
from app.connections.body_rate import STREAM
from app.http.media_types import JSON_LINES
from app.http.negotiation import Accept
from app.http.request_lifetime import seconds_of
from app.http.stream_window import StreamWindow
from app.intake.json_items import in_parsing_thread
from app.intake.request_items import options_of
from app.intake.stream import ImageStream
from app.intake.wanted import ImageRequest, Wanted, images_of_each, kinds
from app.pipeline.results.timings import Timings
from app.responses.body import StreamedBody
from app.responses.streams import json_lines
from app.routes.images.answering import WantedOf, are_long, negotiated, rendering_of
from app.routes.images.image_route import client_name
from app.service import service_of
from models.domain.errors import TooLarge


async def stream_answered(request: Request, wanted_of: WantedOf, accept: Accept) -> Response:
    """Return a response that reads the images of a stream while it sends their records.

    As many images are under way as a request may have. Errors of the options are those of the
    request, whatever is wrong with an image is its own.
    """
    service, settings = service_of(request), service_of(request).settings
    form = negotiated(accept, JSON_LINES, "a stream is answered as")
    options = options_of(request, [])
    most = settings.max_images_per_request
    decide = partial(wanted_of, options, accept, service, partial(_check_parts, most))
    wanted = await in_parsing_thread(decide) if are_long(options) else decide()
    window = StreamWindow(most // images_of_each(wanted))  # each part of an image counts as one
    request.scope[STREAM] = window
    kind = request.headers["content-type"].strip().lower()
    stream = ImageStream(request.receive, kind, _permits(request, wanted), window, settings)
    await stream.begin()
    asked = ImageRequest((), wanted)
    rendering = rendering_of(request, asked, service, Timings(), options, form)
    answers = service.pipeline.stream(stream.items(), wanted, window)
    return StreamedBody(json_lines(answers, rendering), rendering.headers, form, source=answers)


def _check_parts(most: int, parts: int) -> None:
    """Raise TooLarge if an image of this number of parts may not be under way."""
    if parts > most:
        raise TooLarge(
            f"an image with {parts} labels or versions counts as {parts}; a stream has at most "
            f"{most} under way (DARKROOM_MAX_IMAGES_PER_REQUEST)"
        )


def _permits(request: Request, wanted: Wanted) -> StreamPermits:
    service = service_of(request)
    client = client_name(service, request.scope)
    seconds = seconds_of(request.scope, service.settings)
    parts = images_of_each(wanted)
    return StreamPermits(service.admission, client, seconds, kinds(wanted), parts)
