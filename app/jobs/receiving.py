"""Receive the body that makes a job: to disk, piece by piece, checked as it comes."""

import hashlib
import os
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiofiles
from fastapi import Request
from multipart import MultipartError, MultipartSegment, ParserLimitReached

from app.admission.semaphore import FairSemaphore
from app.archives.reading import ArchiveLimits, on_thread, open_archive, unpacked
from app.http.request import while_connected
from app.intake import archive_items
from app.intake.multipart import filename_of, segments
from app.intake.spool import MemoryShare
from app.jobs.files import ARCHIVE, MANIFEST, private, sync_path
from app.jobs.manifest import LONGEST_LINE, Find, ManifestWriter, StoredLine, place_of
from app.jobs.room import Reservation, too_large
from app.jobs.store.values import Span
from models.domain.errors import (
    FieldError,
    InvalidParameter,
    MalformedRequest,
    TooLarge,
    UnsupportedMedia,
)
from models.settings import Settings

# Unpack a compressed TAR into the folder of its job, because jobs read members in any order.
UNPACKED = "archive.unpacked"
"""What is unpacked, before it takes the place of the archive."""

RATIO = 20
"""Times its own size that a compressed TAR may unpack to; photos in it stay as they are."""


def unpack(folder: Path, limits: ArchiveLimits, most: int, room: Reservation) -> None:
    """Replace a compressed TAR by a plain one of at most `most` bytes, counted in `room`.

    Any other archive stays as it is. It blocks, so call it on a thread. Raises BadArchive, TooLarge
    and StorageFull.
    """
    packed, plain, size = folder / ARCHIVE, folder / UNPACKED, 0
    with open(plain, "wb", opener=private) as file:
        for piece in unpacked(packed, replace(limits, ratio=RATIO)):
            size += len(piece)
            if size > most:
                raise TooLarge(f"the archive unpacks to more than {most} bytes; make several jobs")
            room.use_on_thread(len(piece))
            file.write(piece)
    if size:
        os.replace(plain, packed)
    else:
        plain.unlink()


# Divide a JSON list that arrives in pieces into its elements, in bounded memory.
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


class JsonElements:
    """The elements of one JSON list as bytes; each has at most `longest` bytes.

    Only the structure is read here. Parsing checks the inside of an element.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._element = bytearray()
        self._depth = self._count = 0
        self._in_string = self._escaped = self._ended = False

    def write(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the elements that end in the next piece; raises MalformedRequest."""
        place = start = 0
        while place < len(chunk):
            if self._escaped:
                self._escaped, place = False, place + 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(chunk, place)
            if found is None:
                break
            token, place = found[0], found.end()
            if self._divides(token):
                self._take(chunk[start : found.start()])
                start = place
                yield from self._next(token)
        self._take(chunk[start:])
        if not self._depth and self._element.strip():
            raise _no_list()

    @property
    def pending(self) -> int:
        """Return the number of bytes of the element that has come in part."""
        return len(self._element)

    def finish(self) -> None:
        """Raise MalformedRequest if the list has not ended."""
        if not self._ended:
            raise MalformedRequest("the body is not a whole JSON list; it ends before its `]`")

    def _divides(self, token: bytes) -> bool:
        """Take one token; return whether it begins the list, ends it, or ends an element."""
        if self._in_string:
            self._in_string = token != b'"'
            self._escaped = token == b"\\"
            return False
        if token == b'"':
            self._in_string = True
            return False
        if token in b"[{":
            self._depth += 1
            return self._depth == 1
        if token in b"]}":
            self._depth -= 1
            return self._depth <= 0
        return self._depth <= 1

    def _next(self, token: bytes) -> Iterator[bytes]:
        """Yield the element before a token that divides, if there is one."""
        element = bytes(self._element)
        self._element.clear()
        blank = not element.strip()
        if token in b"[{":
            if token == b"{" or not blank or self._ended:
                raise _no_list()
            return
        if self._ended or self._depth < 0 or token == b"}":
            raise _no_list()
        self._ended = token == b"]"
        if blank and not (self._ended and not self._count):
            raise MalformedRequest(f"item {self._count + 1} of the list is empty")
        self._count += 1
        if not blank:
            yield element

    def _take(self, piece: bytes) -> None:
        self._element += piece
        if len(self._element) > self._longest:
            text = f"item {self._count + 1} of the list is longer than {self._longest} bytes"
            raise MalformedRequest(text)


def _no_list() -> MalformedRequest:
    return MalformedRequest('the body is not a JSON list such as [{"url": "https://…"}]')


class ManifestParser:
    """Gives the items of a manifest to `writer`; an element of a list has at most `longest` bytes.

    All methods block; call them in a thread.
    """

    def __init__(self, writer: ManifestWriter, longest: int, *, is_list: bool) -> None:
        self._writer = writer
        self._elements = JsonElements(longest) if is_list else None
        self._begun = False

    @property
    def pending(self) -> int:
        """Return the number of bytes of the item that has come in part."""
        return (self._elements or self._writer).pending

    def write(self, piece: bytes) -> None:
        """Take a piece; raises MalformedRequest and TooLarge.

        The first piece may begin with a byte order mark, which is skipped.
        """
        if not self._begun:
            self._begun, piece = True, piece.removeprefix(BOM_UTF8)
        if self._elements is None:
            self._writer.write(piece)
            return
        for each in self._elements.write(piece):
            self._writer.line(each)

    def finish(self) -> None:
        """Take the end; raises MalformedRequest."""
        if self._elements is not None:
            self._elements.finish()
        self._writer.finish()


JSON, JSON_LINES = "application/json", ("application/x-ndjson", "application/jsonl")
FORM = "multipart/form-data"

PIECE = 1 << 18
"""Bytes that are collected before a thread takes them; each turn of a thread costs some 50 µs."""

SENT = "manifest.sent"
"""The manifest of a form as it was sent, which waits for the archive."""

PARTS = {"manifest": SENT, "archive": ARCHIVE}
"""The parts of a form, and the files that they become."""

MOST_PARTS = 8

COPIES = 2
"""Times that the part of an item that has come is counted as memory: it is copied as it grows, and
when the item is parsed."""

MOST_MEMBERS = 250_000
"""Members of one archive, of which `zipfile` keeps some 600 bytes each."""

FOLDER = 16 << 10
"""Bytes that the folder and the rows of a job are counted as, beside its files."""

THREADS = 2
"""Archives of jobs that one process reads at the same time."""

ARCHIVES = ThreadPoolExecutor(THREADS, "archives of jobs")
"""Threads of their own, because an archive of gigabytes takes minutes: requests never wait here."""

TURNS = FairSemaphore(THREADS)
"""Turns at these threads: one client leaves at least one of them to the others."""

MANIFESTS = ThreadPoolExecutor(2, "manifests")
"""Two threads, because each holds the interpreter's lock while it parses: with six the event loop
waited for over a second."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """A body on disk: its items, the bytes of its files, and the SHA-256 of what was sent."""

    total: int
    stored: int
    spans: list[Span]
    digest: str


@dataclass
class Receiver:
    """Receives the body of one job of a client into its folder; `asked` is part of the digest.

    What it writes is counted in `room`.
    """

    folder: Path
    settings: Settings
    asked: bytes
    chunk: int
    room: Reservation
    client: str
    _size: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256(self.asked)
        members = min(MOST_MEMBERS, self.settings.max_job_items)
        self._limits = ArchiveLimits(members=members)

    async def receive(self, request: Request, kind: str) -> Received:
        """Write a body of media type `kind`; raises ServiceError, and OSError if the disk fails."""
        if kind in archive_items.MEDIA_TYPES:
            await self._save(self.folder / ARCHIVE, request.stream())
            return await self._read(request, self._of_archive)
        if kind == FORM:
            await self._form(request)
            return await self._read(request, self._of_form)
        with closing(self._writer()) as writer:
            parser = ManifestParser(writer, self._longest, is_list=kind == JSON)
            with MemoryShare() as share:
                async for piece in self._pieces(request.stream()):
                    share.resize(COPIES * parser.pending + len(piece))
                    await self._parse(partial(parser.write, piece))
                await self._parse(parser.finish)
            return await self._parse(partial(self._received, writer))

    async def _parse(self, work: Callable[[], T]) -> T:
        return await on_thread(MANIFESTS, work, self._limits.stop)

    async def _read(self, request: Request, work: Callable[[], Received]) -> Received:
        """Run work on files that have arrived on a thread, as long as the client waits."""
        return await while_connected(request, self._in_turn(work))

    async def _in_turn(self, work: Callable[[], Received]) -> Received:
        async with TURNS.hold(self.client):
            return await on_thread(ARCHIVES, work, self._limits.stop)

    async def _form(self, request: Request) -> None:
        """Save the parts of a form."""
        events = segments(request, MOST_PARTS)
        try:
            async for head in events:
                assert isinstance(head, MultipartSegment)
                if head.name not in PARTS or (self.folder / PARTS[head.name]).exists():
                    text = "a form has one `manifest` and one `archive`; options are in the query"
                    raise InvalidParameter(text, [FieldError(str(head.name)[:60], text)])
                self._digest.update(head.name.encode())
                path = self.folder / PARTS[head.name]
                await self._save(path, _content(events))
                if not path.stat().st_size and not filename_of(head):
                    path.unlink()  # a file input of an HTML form that a person left empty
        except ParserLimitReached as error:
            raise TooLarge(f"multipart body: {error.args[0]}") from None
        except MultipartError as error:
            raise MalformedRequest(f"multipart body: {error.args[0]}") from None

    def _of_form(self) -> Received:
        """Read the manifest of a form, whose items may be members of its archive."""
        sent = self.folder / SENT
        if not (self.folder / ARCHIVE).exists():
            raise MalformedRequest("the form has no `archive`; a manifest alone needs no form")
        if not sent.exists():
            return self._of_archive()
        unpack(self.folder, self._limits, self.settings.max_job_bytes, self.room)
        with (
            open_archive(self.folder / ARCHIVE, self._limits) as archive,
            closing(self._writer(archive.find)) as writer,
            sent.open("rb") as file,
        ):
            start = file.read(64).removeprefix(BOM_UTF8).lstrip()
            file.seek(0)
            parser = ManifestParser(writer, self._longest, is_list=start.startswith(b"["))
            for piece in iter(partial(file.read, PIECE), b""):
                parser.write(piece)
            parser.finish()
            sent.unlink()
            return self._received(writer)

    def _of_archive(self) -> Received:
        """Make every member of the archive an item."""
        unpack(self.folder, self._limits, self.settings.max_job_bytes, self.room)
        with (
            open_archive(self.folder / ARCHIVE, self._limits) as archive,
            closing(self._writer()) as writer,
        ):
            for each in archive.members():
                writer.add(StoredLine(path=each.name, member=place_of(each)))
            if not writer.total:
                raise MalformedRequest("the archive has no files")
            writer.finish()
            return self._received(writer)

    def _received(self, writer: ManifestWriter) -> Received:
        archive = self.folder / ARCHIVE
        stored = FOLDER + writer.size
        if archive.exists():
            sync_path(archive)
            stored += archive.stat().st_size
        return Received(writer.total, stored, writer.spans, self._digest.hexdigest())

    def _writer(self, find: Find | None = None) -> ManifestWriter:
        settings = self.settings
        most = settings.max_job_items
        path = self.folder / MANIFEST
        use = self.room.use_on_thread
        return ManifestWriter(path, most, self._longest, chunk=self.chunk, find=find, use=use)

    @property
    def _longest(self) -> int:
        return LONGEST_LINE + self.settings.max_image_bytes * 4 // 3

    async def _save(self, path: Path, content: AsyncIterator[bytes]) -> None:
        async with aiofiles.open(path, "wb", opener=private) as file:
            async for piece in self._pieces(content):
                await self.room.use(len(piece))
                await file.write(piece)

    async def _pieces(self, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield content in larger pieces, which count; raises TooLarge."""
        collected = bytearray()
        async for chunk in content:
            self._size += len(chunk)
            if self._size > self.settings.max_job_bytes:
                raise too_large(self.settings.max_job_bytes)
            self._digest.update(chunk)
            collected += chunk
            if len(collected) >= PIECE:
                yield bytes(collected)
                collected.clear()
        if collected:
            yield bytes(collected)


def check_media_type(kind: str, *, needed: bool) -> None:
    """Raise UnsupportedMedia for a body that no job is made of.

    Where the images come from a `source` or from another job, no body is `needed`, and a form is
    refused too, because any web page may send it.
    """
    allowed = (JSON, *JSON_LINES, *archive_items.MEDIA_TYPES, *([FORM] if needed else [""]))
    if kind not in allowed:
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; a job is made of a manifest as {JSON_LINES[0]} "
            f"or {JSON}, a ZIP or TAR, or a form with both; `source` and `retry_of` take none"
        )


async def _content(events: AsyncIterator[MultipartSegment | bytes | None]) -> AsyncIterator[bytes]:
    """Yield the pieces of one part."""
    async for piece in events:
        if not isinstance(piece, bytes | bytearray):
            return
        yield bytes(piece)
