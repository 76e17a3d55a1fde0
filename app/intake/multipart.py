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

from app.intake.spool import Blob, Spool
from models.domain.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings

LONGEST_FIELD = 1 << 20
"""Bytes of a text field."""

LONGEST_TEXT = 4 << 20
"""Bytes of all text fields together: as many long ones as parts are allowed would fill memory."""

LONGEST_BOUNDARY = 256
"""Characters of a boundary; RFC 2046 allows 70."""

MOST_FOLDED = 1000
"""Header lines of a form that continue others; hardly any client writes them."""

LONGEST_NAME = 1000
"""Characters of a file's name, which goes into its record."""

CHARSETS = dict.fromkeys(("utf-8", "utf8"), "utf-8")
CHARSETS |= dict.fromkeys(("ascii", "us-ascii"), "ascii")
CHARSETS |= dict.fromkeys(("latin-1", "latin1", "iso-8859-1"), "latin-1")
"""The text codecs a field may have, by their names: all are linear, which not every one of Python's
is (one megabyte of punycode takes a minute)."""

DEFAULT_CHARSET = "_charset_"
"""The field that names the codec of those after it (RFC 7578, 4.6)."""

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
    texts = _Texts()
    try:
        async for head in events:
            assert isinstance(head, MultipartSegment)
            name, filename = _utf8(head.name), _utf8(head.filename)[:LONGEST_NAME]
            if not _is_text(head, name):
                yield File(name, filename or None, await _file(events, settings))
            elif (field := await texts.read(events, name, head.charset)) is not None:
                yield field
    except ParserLimitReached as error:
        raise TooLarge(f"multipart body: {error.args[0]}") from None
    except MultipartError as error:
        raise MalformedRequest(f"multipart body: {error.args[0]}") from None


async def _events(request: Request, most: int) -> Events:
    _, options = parse_options_header(request.headers["content-type"])
    boundary = options.get("boundary", "")
    if not 1 <= len(boundary) <= LONGEST_BOUNDARY:
        raise MalformedRequest(
            "multipart body: its Content-Type must name a boundary of 1 to "
            f"{LONGEST_BOUNDARY} characters"
        )
    with _Parser(boundary, max_segment_count=most, header_charset="latin-1") as parser:
        async for chunk in request.stream():
            if chunk:
                for event in parser.parse(chunk):
                    yield event


class _Parser(PushMultipartParser):  # type: ignore[misc]  # the library has no types
    """Takes few folded header lines: each costs a copy of those it continues.

    5 MB of them took 2.6 s of CPU time, in which the event loop did nothing else.
    """

    _folded = 0

    def _on_segment_headerline(self, line: bytes) -> None:
        if line[:1] in (b" ", b"\t"):
            self._folded += 1
            if self._folded > MOST_FOLDED:
                raise ParserLimitReached(f"more than {MOST_FOLDED} folded header lines")
        super()._on_segment_headerline(line)


def _utf8(text: str | None) -> str:
    """A name that was read as Latin-1, which takes all bytes; most clients write UTF-8."""
    return (text or "").encode("latin-1", "replace").decode("utf-8", "replace")


def _is_text(head: MultipartSegment, name: str) -> bool:
    return head.filename is None and head.content_type in TEXT and name not in FILES


class _Texts:
    """Reads the text fields of one form, whose codec and number of bytes they share."""

    def __init__(self) -> None:
        self._default = "utf-8"
        self._left = LONGEST_TEXT

    async def read(self, events: Events, name: str, charset: str | None) -> Field | None:
        """The next field; None for the one that names the codec of those after it."""
        codec = self._default if charset is None else _codec(name, charset)
        content = await self._content(events, name)
        try:
            text = content.decode(codec)
        except UnicodeError:
            raise MalformedRequest(f"the field {_short(name)} is not {codec.upper()}") from None
        if name == DEFAULT_CHARSET:
            self._default = _codec(name, text)
            return None
        return Field(name, text)

    async def _content(self, events: Events, name: str) -> bytes:
        content = bytearray()
        async for piece in events:
            if not isinstance(piece, bytes):
                break
            content += piece
            if len(content) > LONGEST_FIELD:
                raise TooLarge(f"the field {_short(name)} has more than {LONGEST_FIELD} bytes")
            if len(content) > self._left:
                raise TooLarge(f"the text fields have more than {LONGEST_TEXT} bytes together")
        self._left -= len(content)
        return bytes(content)


def _codec(name: str, charset: str) -> str:
    """The Python codec of a charset that a field may have; raises MalformedRequest."""
    codec = CHARSETS.get(charset.strip().lower())
    if codec is None:
        raise MalformedRequest(
            f"the field {_short(name)} has the charset {_short(charset)}; "
            "utf-8, ascii and latin-1 are read"
        )
    return codec


def _short(text: str) -> str:
    return repr(text[:60])


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
