"""A multipart/form-data body (RFC 7578), part by part as it comes: text fields, files as blobs.

Every file goes straight to a spool of its own, so one that is too large is only its own error.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import Request
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from app.spool import Blob, Spool
from models.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings

LONGEST_FIELD = 1 << 20
"""Bytes of a text field."""

FIELDS = 100
"""Parts a form may have beyond one for each image."""

TEXT = (None, "text/plain", "application/json")

FILES = ("files", "file")
"""Fields whose parts are files, with a filename or without."""


@dataclass(frozen=True, slots=True)
class Field:
    """A text field."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """An uploaded file, or why it was not taken; `filename` is what the client calls it."""

    name: str
    filename: str | None
    content: Blob | ServiceError


Events = AsyncIterator[MultipartSegment | bytes | None]
"""For each part its head, pieces of its body, and None at its end."""


async def parts(request: Request, settings: Settings) -> AsyncIterator[Field | File]:
    """Every part in order. Raises MalformedRequest, and TooLarge for too many or too long ones."""
    events = _events(request, settings.max_images_per_request + FIELDS)
    try:
        async for head in events:
            assert isinstance(head, MultipartSegment)
            name, filename = _utf8(head.name), _utf8(head.filename)
            if head.filename is None and head.content_type in TEXT and name not in FILES:
                yield Field(name, await _text(events, name, head.charset or "utf-8"))
            else:
                yield File(name, filename or None, await _file(events, settings))
    except ParserLimitReached as error:
        raise TooLarge(f"multipart body: {error.args[0]}") from None
    except MultipartError as error:
        raise MalformedRequest(f"multipart body: {error.args[0]}") from None


async def _events(request: Request, most: int) -> Events:
    _, options = parse_options_header(request.headers["content-type"])
    if not options.get("boundary"):
        raise MalformedRequest("multipart body: its Content-Type names no boundary")
    with PushMultipartParser(
        options["boundary"], max_segment_count=most, header_charset="latin-1"
    ) as parser:
        async for chunk in request.stream():
            if chunk:
                for event in parser.parse(chunk):
                    yield event


def _utf8(text: str | None) -> str:
    """A name that was read as Latin-1, which takes all bytes; most clients write UTF-8."""
    return (text or "").encode("latin-1", "replace").decode("utf-8", "replace")


async def _text(events: Events, name: str, charset: str) -> str:
    pieces, size = [], 0
    async for piece in events:
        if not isinstance(piece, bytes):
            break
        pieces.append(piece)
        size += len(piece)
        if size > LONGEST_FIELD:
            raise TooLarge(f"the field {name!r} has more than {LONGEST_FIELD} bytes")
    try:
        return b"".join(pieces).decode(charset)
    except (UnicodeDecodeError, LookupError):
        raise MalformedRequest(f"the field {name!r} is not {charset.upper()}") from None


async def _file(events: Events, settings: Settings) -> Blob | ServiceError:
    """All of a part's body, also of one that is too large: what follows it must be found."""
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        refused: ServiceError | None = None
        async for piece in events:
            if not isinstance(piece, bytes):
                break
            if refused is None:
                try:
                    await spool.write(piece)
                except TooLarge as error:
                    refused = error.with_traceback(None)
        return refused or await spool.finish()
