"""Read the images and options of a JSON body; a `data` URI is decoded into a spool of its own."""

import asyncio
from typing import TypeVar

from fastapi import Request
from pydantic import ValidationError

from app.http.problems import invalid
from app.intake.item import Found, Options, Url, check_count, shown_url, url_content
from app.intake.spool import Blob, Spool
from app.parsing.arriving import ArrivingJson, JsonRoom, Text
from app.parsing.data_uri import DataUri
from app.parsing.parsing_thread import in_parsing_thread
from app.parsing.structure import Bounds, Cut, cut
from models.api.schemas import JsonImage, JsonImages
from models.domain.errors import (
    FieldError,
    InvalidParameter,
    MalformedRequest,
    Overloaded,
    ServiceError,
    TooLarge,
)
from models.settings import Settings

JsonT = TypeVar("JsonT", JsonImage, JsonImages)

JSON_AT_ONCE, BASE64_AT_ONCE = 1 << 13, 1 << 16
"""Largest bodies, in bytes, that are parsed on the event loop: 0.1 ms, as long as to hand them to a
thread. JSON of brackets alone takes some milliseconds."""

ROOM = JsonRoom()
"""The memory of all large JSON bodies, and lines of streams, of this process."""


async def json_items(
    request: Request, client: str, settings: Settings
) -> tuple[list[Found], Options]:
    """Read a JSON body of a client; raises ServiceError."""
    with ArrivingJson(ROOM.of(client)) as arriving:
        async for chunk in request.stream():
            arriving.write(chunk)
        return await _read_json(arriving.text(), settings)


async def _read_json(body: Text, settings: Settings) -> tuple[list[Found], Options]:
    bounds = Bounds.of(settings.max_images_per_request)
    small = len(body) <= JSON_AT_ONCE
    parsed, long = (
        _parsed(JsonImages, body, bounds)
        if small
        else await in_parsing_thread(_parsed, JsonImages, body, bounds)
    )
    check_count(len(parsed.images) + len(parsed.urls), settings)
    contents = [
        await content_of(f"images[{index}]", image, body, long, settings)
        for index, image in enumerate(parsed.images)
    ]
    found = [
        (content, shown_url(image.url), image.id)
        for content, image in zip(contents, parsed.images, strict=True)
    ]
    found.extend((url_content(url), shown_url(url), None) for url in parsed.urls)
    return found, [*(parsed.model_extra or {}).items()]


async def json_line(line: Text, settings: Settings) -> Found:
    """Read one image from a line of a stream; whatever is wrong with it is its error."""
    bounds, small = Bounds.of(1), len(line) <= JSON_AT_ONCE
    try:
        image, long = (
            _parsed(JsonImage, line, bounds)
            if small
            else await in_parsing_thread(_parsed, JsonImage, line, bounds)
        )
    except ServiceError as error:
        return error.with_traceback(None), None, None
    content: Blob | Url | ServiceError
    try:
        content = await content_of("", image, line, long, settings)
    except (InvalidParameter, Overloaded) as error:
        content = error.with_traceback(None)
    return content, shown_url(image.url), image.id


def _parsed(kind: type[JsonT], body: Text, bounds: Bounds) -> tuple[JsonT, Cut]:
    """Parse JSON without its long `data`, whose places are in the second value."""
    found = cut(body, bounds, one_image=kind is JsonImage)
    try:
        return kind.model_validate_json(found.text), found
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        if details[0]["type"] == "json_invalid":
            text = "the body" if kind is JsonImages else "the line"
            raise MalformedRequest(f"{text} is not valid JSON") from None
        raise invalid(details) from None


async def content_of(
    path: str, image: JsonImage, body: Text, long: Cut, settings: Settings
) -> Blob | Url | ServiceError:
    """Return the content of an image that stands at `path` of a body, decoded if it is `data`.

    Raises InvalidParameter for an image without content or with two.
    """
    if (image.url is None) == (image.data is None):
        wrong = FieldError(path, "exactly one of `url` and `data` is needed")
        raise InvalidParameter(f"{path}: {wrong.message}".removeprefix(": "), [wrong])
    if image.url is not None:
        return url_content(image.url)
    data = image.data or ""
    span = long.spans.get(data)
    return await _decoded(DataUri(body, *span) if span else DataUri.of(data), settings)


async def _decoded(uri: DataUri, settings: Settings) -> Blob | ServiceError:
    """Return the bytes of a data URI, or its error."""
    pieces = uri.pieces()
    small = uri.end - uri.start <= BASE64_AT_ONCE and uri.is_plain
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        try:
            while (
                piece := next(pieces, b"") if small else await asyncio.to_thread(next, pieces, b"")
            ):
                await spool.write(piece)
        except (TooLarge, MalformedRequest) as error:
            return error.with_traceback(None)
        return await spool.finish()
