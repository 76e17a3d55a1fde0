"""List the images of a request in order, from a raw body, a form, JSON, a ZIP or a TAR.

Each image is a blob, a URL or an error. Nothing is fetched or decoded here. Each file of a form,
and each member of an archive, has a spool of its own: large ones go to disk, and each is checked,
fails and counts as an upload does.
"""

import re
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from app.admission import Permit
from app.admission.semaphore import FairSemaphore
from app.archives.reading import (
    SUFFIXES,
    XZ_MEMORY_OF_REQUESTS,
    Archive,
    ArchiveLimits,
    Member,
    open_archive,
)
from app.http.request import content_type, media_type
from app.intake.body import announced, spooled
from app.intake.item import Found, Item, Options, Url, check_count, shown_url
from app.intake.json_items import json_items
from app.intake.spool import Blob, ImageSpool, keep
from models.domain.errors import (
    BadArchive,
    InvalidParameter,
    MalformedRequest,
    ServiceError,
    TooLarge,
    UnsupportedMedia,
)
from models.settings import Settings
from models.threads import run_to_end

MOST_OPTIONS = 100
"""Largest number of options of one request, more than twice as many as exist."""


MEDIA_TYPES = (
    "application/zip",
    "application/x-zip-compressed",
    "application/x-tar",
    "application/gzip",
    "application/x-gzip",
    "application/x-bzip2",
    "application/x-xz",
)
"""Types of bodies that are taken apart; which kind of archive it is, its first bytes say."""

ENTRIES = 100
"""Largest number of entries beside one for each image: folders, hidden files, texts."""

THREADS = 4
"""Archives of requests that one process reads at the same time, on threads of their own: to
read a compressed TAR of some megabytes can take minutes."""

REQUESTS = ThreadPoolExecutor(THREADS, "archives")

PLACES = FairSemaphore(THREADS)
"""Places for the archives of requests; one client leaves at least one to the others. An archive
keeps its place also between two members, because it holds up to 9 MiB for its decompressor."""


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
    items = [Item(n, *each) for n, each in enumerate(found)]
    return tuple(items), options_of(request, options)


def options_of(request: Request, options: Options) -> dict[str, Any]:
    """Return the options of the query and of the body by name; raises InvalidParameter."""
    asked = request.query_params.multi_items() if request.scope["query_string"] else ()
    options = [*asked, *options]
    if len(options) > MOST_OPTIONS:
        raise InvalidParameter(f"{len(options)} options; one request has at most {MOST_OPTIONS}")
    known: dict[str, Any] = {}
    for name, value in options:
        if name in known:
            raise InvalidParameter.of(name[:60], "given more than once", value)
        known[name] = value
    return known


def is_archive(media_type: str | None, filename: str | None) -> bool:
    """Return whether a file of a form is taken apart, by its type or the end of its name."""
    return media_type in MEDIA_TYPES or bool(filename and filename.lower().endswith(SUFFIXES))


async def images_of(
    packed: Blob, permit: Permit, settings: Settings, already: int = 0
) -> list[Found]:
    """Return the files in an archive, in its order, and close it.

    `already` is the number of images before them in the request; `permit` grows by their bytes. A
    member that cannot be read is an error of its own, as is what comes after a damage. Waits while
    other requests read as many archives as there are places. Raises BadArchive for an archive that
    cannot be read at all, TooLarge for too many images, and Overloaded.
    """
    found: list[Found] = []
    most = settings.max_images_per_request
    limits = ArchiveLimits(members=most + ENTRIES, memory=XZ_MEMORY_OF_REQUESTS)
    on_archive_thread = partial(run_to_end, REQUESTS, stop=limits.stop.set)
    try:
        async with PLACES.hold(permit.client):
            with (
                packed.opened() as file,
                await on_archive_thread(partial(open_archive, file, limits)) as archive,
            ):
                unpacking = partial(_next, archive, archive.members(), settings)
                while (each := await on_archive_thread(unpacking)) is not None:
                    check_count(already + len(found) + 1, settings)
                    if isinstance(each[0], Blob):
                        permit.grow(0, each[0].size)
                    found.append(each)
    finally:
        packed.close()
    if not found:
        raise MalformedRequest("the archive has no images: only folders, links or hidden files")
    return found


def _next(archive: Archive, members: Iterator[Member], settings: Settings) -> Found | None:
    """Return the next file with its name, or the error of the rest, or None at the end."""
    name = None
    try:
        if (member := next(members, None)) is None:
            return None
        name = member.name
        most = settings.max_image_bytes
        return keep(archive.read(member, most), most), name, None
    except (BadArchive, TooLarge) as error:
        return error.with_traceback(None), name, None


LONGEST_TEXT = 4 << 20
"""Largest number of bytes of all text fields together; a form may have hundreds of them."""

LONGEST_BOUNDARY = 256
"""Largest number of characters of a boundary; RFC 2046 allows 70."""

LONGEST_NAME = 1000
"""Largest number of characters of a file's name, which is part of its record."""

_EXTENDED_NAME = re.compile(
    r""";\s*filename\*\s*=\s*"?(utf-8|iso-8859-1)'[^']*'([^";\s]*)""", re.IGNORECASE
)
"""The codec and the text of `filename*`. Other codecs of Python fail at some bytes, or are slow."""

FIELDS = 100
"""Largest number of parts of a form besides one for each image."""

FILES = ("files", "file")
"""Names of the fields that hold images, with or without a filename. All other fields hold text."""

PICTURES = ("overlay", "template")
"""Names of the fields that hold the picture of the filter `overlay`, and the picture that `/match`
finds, no larger than the texts."""

CHARSET = "_charset_"
"""Name of a field that browsers fill in (RFC 7578, section 4.6); it is ignored: text is UTF-8."""

URLS = ("urls", "url")
"""Names of the fields that hold the address of an image."""


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
    part: ImageSpool | None = None
    try:
        async with aclosing(segments(request, settings.max_images_per_request + FIELDS)) as events:
            async for event in events:
                if isinstance(event, MultipartSegment):
                    head, name, filename = event, _utf8(event.name), filename_of(event)
                    packed = is_archive(head.content_type, filename)
                    most = settings.max_body_bytes if packed else settings.max_image_bytes
                    part = ImageSpool(most if name in FILES else left)
                    continue
                assert part is not None  # a head comes first
                if event is not None:
                    await part.write(event)
                    continue
                content = part.outcome()
                left -= part.size if name not in FILES else 0
                if name in PICTURES and isinstance(content, Blob) and content.size:
                    options.append((name, content))
                elif name not in FILES:
                    _add_text(name, _text(name, head, content), found, options)
                elif packed and isinstance(content, Blob):
                    more = images_of(content, permit, settings, len(found))
                    try:
                        found += await more
                    except (BadArchive, MalformedRequest) as error:
                        found.append((error.with_traceback(None), filename or None, None))
                # A browser sends a file input without a file as an empty file without a name.
                elif filename or not isinstance(content, Blob) or content.size:
                    found.append((content, filename or None, None))
    finally:
        if part is not None:
            part.close()
    return found, options


def _add_text(name: str, text: str, found: list[Found], options: Options) -> None:
    """Add a field of text to the images or the options of its form."""
    if not text.strip() or name == CHARSET:
        return  # a person left the field of an HTML form empty
    if name in URLS:
        found.append((Url(text.strip()), shown_url(text.strip()), None))
    else:
        options.append((name, text))


async def segments(
    request: Request, most: int
) -> AsyncGenerator[MultipartSegment | bytes | None, None]:
    """Yield for each part of a form its head, pieces of its body, and None at its end.

    Raises MalformedRequest, and TooLarge for more than `most` parts.
    """
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
                for event in parser.parse(chunk) if chunk else ():  # an empty chunk ends a form
                    yield event
    except ParserLimitReached as error:
        raise TooLarge(f"multipart body: {error.args[0]}") from None
    except MultipartError as error:
        raise MalformedRequest(f"multipart body: {error.args[0]}") from None


def _utf8(text: str | None) -> str:
    """Decode a name again as UTF-8, which most clients send; it was decoded as Latin-1 before."""
    if text is None or text.isascii():
        return text or ""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def filename_of(head: MultipartSegment) -> str:
    """Return the name of a part's file, empty without one.

    `filename*` (RFC 8187) wins over `filename`, because it names its codec.
    """
    name = _utf8(head.filename)
    if extended := _EXTENDED_NAME.search(head.header("Content-Disposition", "")):
        name = unquote(extended[2], extended[1])
    return name[:LONGEST_NAME]


def _text(name: str, head: MultipartSegment, content: Blob | ServiceError) -> str:
    """Return the text of a field; raises InvalidParameter for a file that is no text."""
    try:
        if isinstance(content, TooLarge):
            raise TooLarge(f"the text fields have more than {LONGEST_TEXT} bytes together")
        if isinstance(content, ServiceError):
            raise content
        if (head.content_type or "").startswith("image/"):
            raise _unknown_file(name)
        return content.read().decode().removeprefix("\ufeff")
    except (TooLarge, UnicodeError) as error:
        if head.filename is not None:
            raise _unknown_file(name) from None
        if isinstance(error, TooLarge):
            raise
        raise MalformedRequest(f"the field {name[:60]!r} is not UTF-8") from None


def _unknown_file(name: str) -> InvalidParameter:
    text = "an unknown file field: images are sent as `files` or `file`; "
    return InvalidParameter.of(name[:60], f"{text}a file of another field is the option's text")
