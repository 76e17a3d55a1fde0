"""Read the images and options of a multipart/form-data body (RFC 7578), part by part.

Each file is written to a spool of its own, so a file that is too large fails alone.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.utils import collapse_rfc2231_value

from fastapi import Request
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from app.admission import Permit
from app.intake.archive_items import images_of, is_archive
from app.intake.item import Found, Options, Url, shown_url
from app.intake.spool import Blob, kept
from models.domain.errors import (
    BadArchive,
    FieldError,
    InvalidParameter,
    MalformedRequest,
    TooLarge,
)
from models.settings import Settings

LONGEST_TEXT = 4 << 20
"""Largest number of bytes of all text fields together; a form may have hundreds of them."""

LONGEST_BOUNDARY = 256
"""Largest number of characters of a boundary; RFC 2046 allows 70."""

LONGEST_NAME = 1000
"""Largest number of characters of a file's name, which is part of its record."""

FIELDS = 100
"""Largest number of parts of a form besides one for each image."""

FILES = ("files", "file")
"""Names of the fields that hold images, with or without a filename. All other fields hold text."""

CHARSET = "_charset_"
"""Name of a field that browsers fill in (RFC 7578, section 4.6); it is ignored: text is UTF-8."""

URLS = ("urls", "url")
"""Names of the fields that hold the address of an image."""

Events = AsyncIterator[MultipartSegment | bytes | None]
"""Events of the parser: for each part its head, pieces of its body, and None at its end."""


async def form_items(
    request: Request, permit: Permit, settings: Settings
) -> tuple[list[Found], Options]:
    """Return the images and options of a form, without the inputs that were left empty.

    A file that is an archive gives the images in it. Raises MalformedRequest, TooLarge (number or
    size of parts), and InvalidParameter for a file that is neither an image field nor text.
    """
    found: list[Found] = []
    options: Options = []
    left = LONGEST_TEXT
    events = segments(request, settings.max_images_per_request + FIELDS)
    async for head in events:
        assert isinstance(head, MultipartSegment)
        name = _utf8(head.name)
        if name in FILES:
            filename = filename_of(head)
            packed = is_archive(head.content_type, filename)
            most = settings.max_body_bytes if packed else settings.max_image_bytes
            content = await kept(events, most)
            if packed and isinstance(content, Blob):
                try:
                    found += await images_of(content, permit, settings, len(found))
                except (BadArchive, MalformedRequest) as error:
                    found.append((error.with_traceback(None), filename or None, None))
            # A browser sends a file input without a file as an empty file without a name.
            elif filename or not isinstance(content, Blob) or content.size:
                found.append((content, filename or None, None))
            continue
        size, text = await _text(events, name, head, left)
        left -= size
        if not text.strip() or name == CHARSET:
            continue  # a person left the field of an HTML form empty
        if name in URLS:
            found.append((Url(text.strip()), shown_url(text.strip()), None))
        else:
            options.append((name, text))
    return found, options


async def segments(request: Request, most: int) -> Events:
    """Yield the events of a form of at most `most` parts; raises MalformedRequest and TooLarge."""
    _, options = parse_options_header(request.headers["content-type"])
    boundary = options.get("boundary", "")
    if not 1 <= len(boundary) <= LONGEST_BOUNDARY:
        raise MalformedRequest(
            "multipart body: its Content-Type must name a boundary of 1 to "
            f"{LONGEST_BOUNDARY} characters"
        )
    parser = PushMultipartParser(boundary, max_segment_count=most, header_charset="latin-1")
    try:
        with parser:
            async for chunk in request.stream():
                if chunk:
                    for event in parser.parse(chunk):
                        yield event
    except ParserLimitReached as error:
        raise TooLarge(f"multipart body: {error.args[0]}") from None
    except MultipartError as error:
        raise MalformedRequest(f"multipart body: {error.args[0]}") from None


def _utf8(text: str | None) -> str:
    """Decode a name again as UTF-8, which most clients send; it was decoded as Latin-1 before."""
    return (text or "").encode("latin-1", "replace").decode("utf-8", "replace")


def filename_of(head: MultipartSegment) -> str:
    """Return the name of a part's file, empty without one.

    `filename*` (RFC 8187, RFC 2231) wins over `filename`, because it names its codec. Encoded words
    (RFC 2047) are decoded. The folders of a path with backslashes, which old browsers sent, go.
    """
    name = _utf8(head.filename)
    disposition = head.header("Content-Disposition", "")
    if "*" in disposition:
        name = _extended_name(disposition) or name
    name = name[:LONGEST_NAME]
    if "=?" in name:
        with suppress(HeaderParseError, LookupError, ValueError):  # of what only looks like them
            name = "".join(
                each if isinstance(each, str) else each.decode(codec or "raw-unicode-escape")
                for each, codec in decode_header(name)
            )
    if name[1:3] == ":\\" or name[:2] == "\\\\":
        name = name.rpartition("\\")[2]
    # UTF-7 and escapes may hold half a surrogate pair, which no answer can hold.
    return name.encode(errors="replace").decode()


def _extended_name(disposition: str) -> str | None:
    """Return the value of `filename*`, or of its parts `filename*0*` …; None without one."""
    message = Message()
    message["Content-Disposition"] = disposition
    try:
        given = message.get_params([], "Content-Disposition")
        names = [value for key, value in given if key.lower() == "filename"]
        # `email` appends the values that it decoded to the plain ones.
        return collapse_rfc2231_value(names[-1]) if names else None
    except (LookupError, TypeError, ValueError):
        return None  # an unknown codec, or parts without an order


async def _text(events: Events, name: str, head: MultipartSegment, left: int) -> tuple[int, str]:
    """Return the bytes and the text of a field, of which all fields have at most `left` more."""
    is_file = head.filename is not None
    if (head.content_type or "").startswith("image/"):
        raise _unknown_file(name)
    content = bytearray()
    async for piece in events:
        if not isinstance(piece, bytes):
            break
        content += piece
        if len(content) > left:
            if is_file:
                raise _unknown_file(name)
            raise TooLarge(f"the text fields have more than {LONGEST_TEXT} bytes together")
    try:
        return len(content), content.decode().removeprefix("\ufeff")
    except UnicodeError:
        if is_file:
            raise _unknown_file(name) from None
        raise MalformedRequest(f"the field {_short(name)} is not UTF-8") from None


def _unknown_file(name: str) -> InvalidParameter:
    wrong = FieldError(
        name, "images are sent as `files` or `file`; a file of another field is the option's text"
    )
    return InvalidParameter(f"unknown file field {_short(name)}: {wrong.message}", [wrong])


def _short(text: str) -> str:
    return repr(text[:60])
