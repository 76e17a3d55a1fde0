"""List the images of a request in order, from a raw body, a multipart or a JSON body.

Each image is a blob, a URL or an error. Nothing is fetched or decoded here.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from app.admission import Permit
from app.http.problems import invalid
from app.intake import multipart
from app.intake.body import announced
from app.intake.spool import Blob, Spool
from app.parsing.arriving import ArrivingJson, JsonRoom, Text
from app.parsing.data_uri import DataUri
from app.parsing.structure import Bounds, Cut, cut
from app.urls.url_policy import MAX_URL, parse_url
from models.api.schemas import JsonImage, JsonImages
from models.domain.errors import (
    FieldError,
    InvalidParameter,
    MalformedRequest,
    ServiceError,
    TooLarge,
    UnsupportedMedia,
)
from models.settings import Settings

JSON_AT_ONCE, BASE64_AT_ONCE = 1 << 13, 1 << 16
"""Largest bodies, in bytes, that are parsed on the event loop: 0.1 ms, as long as to hand them to a
thread. JSON of brackets alone takes some milliseconds."""

_ROOM = JsonRoom()

MOST_OPTIONS = 100
"""Largest number of options of one request, more than twice as many as exist."""


@dataclass(frozen=True, slots=True)
class Url:
    """The address of an image that has to be fetched."""

    url: str


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a request: its place, its content, the client's file name or URL, and its id."""

    index: int
    content: Blob | Url | ServiceError
    source: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """The images and options of a request."""

    items: tuple[Item, ...]
    options: dict[str, Any]

    @property
    def single(self) -> bool:
        """Return whether there is exactly one image, whose error is the error of the request."""
        return len(self.items) == 1


async def collect(request: Request, permit: Permit, settings: Settings) -> Intake:
    """Read the body of a request; `permit` grows by the images found. Raises ServiceError."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        found, options = await _multipart(request, settings)
    elif kind == "application/json" or kind.endswith("+json"):
        found, options = await _json(request, settings)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        found, options = [(await _raw(request, settings), None, None)], []
    else:
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; send an image as image/* or "
            "application/octet-stream, or images as multipart/form-data or application/json"
        )
    _check_count(len(found), settings)
    permit.grow(len(found) - 1, 0)
    items = (Item(n, content, source, id_) for n, (content, source, id_) in enumerate(found))
    asked = request.query_params.multi_items() if request.scope["query_string"] else ()
    return Intake(tuple(items), _once([*asked, *options]))


Options = list[tuple[str, Any]]
"""Names and values in the order of the request."""

Found = tuple[Blob | Url | ServiceError, str | None, str | None]
"""Content, source (file name or URL) and the client's id of an image."""


def _check_count(count: int, settings: Settings) -> None:
    if count == 0:
        raise MalformedRequest("no image: send `files` or `urls`, or `images` in JSON")
    if count > settings.max_images_per_request:
        raise TooLarge(
            f"{count} images; one request takes {settings.max_images_per_request} "
            "(DARKROOM_MAX_IMAGES_PER_REQUEST), send several"
        )


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


async def _raw(request: Request, settings: Settings) -> Blob:
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        spool.expect(announced(request))
        async for chunk in request.stream():
            await spool.write(chunk)
        return await spool.finish()


async def _multipart(request: Request, settings: Settings) -> tuple[list[Found], Options]:
    found: list[Found] = []
    options: Options = []
    async for part in multipart.parts(request, settings):
        if isinstance(part, multipart.File):
            if part.name not in multipart.FILES:
                wrong = FieldError(part.name, "files are sent as `files` or `file`")
                raise InvalidParameter(f"unknown file field {part.name[:60]!r}", [wrong])
            found.append((part.content, part.filename, None))
        elif part.name == "urls":
            found.append((_url(part.text), _shown(part.text), None))
        else:
            options.append((part.name, part.text))
    return found, options


async def _json(request: Request, settings: Settings) -> tuple[list[Found], Options]:
    with ArrivingJson(_ROOM) as arriving:
        async for chunk in request.stream():
            arriving.write(chunk)
        return await _read_json(arriving.text(), settings)


async def _read_json(body: Text, settings: Settings) -> tuple[list[Found], Options]:
    bounds = Bounds.of(settings.max_images_per_request)
    small = len(body) <= JSON_AT_ONCE
    parsed, long = (
        _parsed(body, bounds) if small else await asyncio.to_thread(_parsed, body, bounds)
    )
    _check_count(len(parsed.images) + len(parsed.urls), settings)
    contents = [
        await _content(index, image, body, long, settings)
        for index, image in enumerate(parsed.images)
    ]
    found = [
        (content, _shown(image.url), image.id)
        for content, image in zip(contents, parsed.images, strict=True)
    ]
    found.extend((_url(url), _shown(url), None) for url in parsed.urls)
    return found, [*(parsed.model_extra or {}).items()]


def _parsed(body: Text, bounds: Bounds) -> tuple[JsonImages, Cut]:
    """Parse a JSON body without its long `data`, whose places are in the second value."""
    found = cut(body, bounds)
    try:
        return JsonImages.model_validate_json(found.text), found
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        if details[0]["type"] == "json_invalid":
            raise MalformedRequest("the body is not valid JSON") from None
        raise invalid(details) from None


async def _content(
    index: int, image: JsonImage, body: Text, long: Cut, settings: Settings
) -> Blob | Url | ServiceError:
    if (image.url is None) == (image.data is None):
        wrong = FieldError(f"images[{index}]", "exactly one of `url` and `data` is needed")
        raise InvalidParameter(f"{wrong.path}: {wrong.message}", [wrong])
    if image.url is not None:
        return _url(image.url)
    data = image.data or ""
    span = long.spans.get(data)
    return await _decoded(DataUri(body, *span) if span else DataUri.of(data), settings)


async def _decoded(uri: DataUri, settings: Settings) -> Blob | ServiceError:
    """Return the bytes of a data URI, or its error."""
    pieces = uri.pieces()
    small = uri.end - uri.start <= BASE64_AT_ONCE
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        try:
            spool.expect(uri.size)
            while (
                piece := next(pieces, b"") if small else await asyncio.to_thread(next, pieces, b"")
            ):
                await spool.write(piece)
        except (TooLarge, MalformedRequest) as error:
            return error.with_traceback(None)
        return await spool.finish()


async def _next(pieces: Iterator[bytes], at_once: bool) -> bytes | None:
    return next(pieces, None) if at_once else await asyncio.to_thread(next, pieces, None)


def _url(url: str) -> Url | ServiceError:
    """Return the image at a URL, or the error of a URL that is too long to be fetched."""
    if len(url) <= MAX_URL:
        return Url(url)
    try:
        parse_url(url)
    except ServiceError as error:
        return error.with_traceback(None)
    raise AssertionError("unreachable: it is too long")


def _shown(url: str | None) -> str | None:
    """Return a URL as the source in a record, cut if it is too long to be fetched."""
    return url if url is None or len(url) <= MAX_URL else url[:200] + "…"
