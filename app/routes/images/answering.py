"""What every answer of an image route needs before its work starts."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request

from app.archives.image_names import ImageNames
from app.http.media_types import MULTIPART, ZIP
from app.http.negotiation import Accept
from app.intake.wanted import ImageRequest, Wanted
from app.pipeline.results.timings import Timings
from app.responses.rendering import Rendering, headers_of
from app.responses.vectors import VectorStyle
from app.routes.images.entity_tags import caching_headers
from app.service import Service
from models.domain.errors import NotAcceptable

CheckParts = Callable[[int], None]
"""Raise TooLarge if the images of a request may not have this number of parts each."""

WantedOf = Callable[[Mapping[str, Any], Accept, Service, CheckParts], Wanted]
"""Map the options of a request and its Accept header to what is wanted of each image.

One that asks for several parts of an image calls the last argument before it does any work on them.
"""

LONG, MANY = 1 << 13, 8
"""Characters of a text, and members of a list, beyond which an option is read on a thread. To read
64 chains of 32 filters takes 10 ms, and 12 ms more where they are the text of a form."""


def are_long(options: Mapping[str, Any]) -> bool:
    """Return whether an option takes so long to read that a thread does it."""
    for given in options.values():
        if isinstance(given, str):
            if len(given) > LONG:
                return True
        elif isinstance(given, list) and (len(given) > MANY or any(map(_has_long_text, given))):
            return True
    return False


def _has_long_text(member: object) -> bool:
    texts = member.values() if isinstance(member, Mapping) else (member,)
    return any(isinstance(each, str) and len(each) > LONG for each in texts)


def negotiated(accept: Accept, offers: tuple[str, ...], refusal: str) -> str:
    """Return the offer that Accept likes best; raises NotAcceptable that begins with `refusal`."""
    chosen = accept.best(offers)
    if chosen is None:
        raise NotAcceptable(f"{refusal} {', '.join(offers)}")
    return chosen


def rendering_of(
    request: Request,
    asked: ImageRequest,
    service: Service,
    timings: Timings,
    options: Mapping[str, Any],
    form: str,
) -> Rendering:
    """Return the values with which the answers of a request are rendered."""
    network = asked.network
    model = None if network is None else service.computing().chosen(network).model
    record, labels = (None, None)
    if model is not None:
        record, labels = model.record_for("model" in options), model.labels
    headers = headers_of(asked.wanted, record)
    style, good = VectorStyle.of(options), caching_headers(form, service.settings)
    names = _names(asked) if form in (ZIP, MULTIPART) else ()
    return Rendering(request, headers, timings, record, labels, style, good, names)


def _names(asked: ImageRequest) -> list[str]:
    """Return the names of the images of a request in an archive."""
    names = ImageNames()
    return [names.next(each.index, each.source, each.id) for each in asked.items]
