"""List the images of a request in order, from a raw body, a form, JSON, a ZIP or a TAR.

Each image is a blob, a URL or an error. Nothing is fetched or decoded here.
"""

from typing import Any

from fastapi import Request

from app.admission import Permit
from app.http.request import content_type, media_type
from app.intake.archive_items import MEDIA_TYPES, images_of
from app.intake.body import announced, spooled
from app.intake.item import Item, Options, check_count
from app.intake.json_items import json_items
from app.intake.multipart import form_items
from models.domain.errors import FieldError, InvalidParameter, UnsupportedMedia
from models.settings import Settings

MOST_OPTIONS = 100
"""Largest number of options of one request, more than twice as many as exist."""


async def collect(
    request: Request, permit: Permit, settings: Settings
) -> tuple[tuple[Item, ...], dict[str, Any]]:
    """Return the images and options of a request; `permit` grows by the images found.

    Raises ServiceError.
    """
    kind = media_type(content_type(request.scope))
    if kind == "multipart/form-data":
        found, options = await form_items(request, permit, settings)
    elif kind == "application/json" or kind.endswith("+json"):
        found, options = await json_items(request.receive, settings)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        size = announced(request.scope)
        image = await spooled(request.receive, settings.max_image_bytes, size)
        found, options = [(image, None, None)], []
    elif kind in MEDIA_TYPES:
        packed = await spooled(request.receive, settings.max_body_bytes)
        found, options = await images_of(packed, permit, settings), []
    else:
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; send an image as image/* or "
            "application/octet-stream, or images as multipart/form-data, application/json, "
            "application/zip or application/x-tar"
        )
    check_count(len(found), settings)
    if len(found) > 1:
        permit.grow(len(found) - 1, 0)
    items = (Item(n, content, source, id_) for n, (content, source, id_) in enumerate(found))
    return tuple(items), options_of(request, options)


def options_of(request: Request, options: Options) -> dict[str, Any]:
    """Return the options of the query and those of the body; raises InvalidParameter."""
    asked = request.query_params.multi_items() if request.scope["query_string"] else ()
    return _once([*asked, *options])


def _once(options: Options) -> dict[str, Any]:
    """Return options by name; InvalidParameter for a name that is given twice."""
    if len(options) > MOST_OPTIONS:
        raise InvalidParameter(f"{len(options)} options; one request has at most {MOST_OPTIONS}")
    known: dict[str, Any] = {}
    for name, value in options:
        if name in known:
            wrong = FieldError(name, "given more than once", value)
            raise InvalidParameter(f"{name[:60]}: {wrong.message}", [wrong])
        known[name] = value
    return known
