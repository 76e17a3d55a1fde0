"""Receive the body that makes a job: to disk, piece by piece, then checked as a whole."""

import hashlib
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiofiles
from fastapi import Request
from multipart import MultipartSegment

from app.admission.semaphore import FairSemaphore
from app.archives.reading import ArchiveLimits, on_thread, open_archive, unpacked
from app.http.request import ClientLeft, unless_left
from app.intake import archive_items
from app.intake.multipart import filename_of, segments
from app.jobs.files import ARCHIVE, MANIFEST, private, sync_path
from app.jobs.manifest import LONGEST_LINE, ManifestWriter, StoredLine, place_of
from app.jobs.store.tables import Span
from models.domain.errors import (
    FieldError,
    InvalidParameter,
    MalformedRequest,
    StorageFull,
    TooLarge,
    UnsupportedMedia,
)
from models.settings import Settings


class Room:
    """The bytes that one body may write into the data folder; `full` is the error beyond them."""

    def __init__(self, left: int, full: StorageFull) -> None:
        self._left = left
        self._full = full

    def use(self, n_bytes: int) -> None:
        """Count bytes that are about to be written; raises StorageFull."""
        self._left -= n_bytes
        self.check(0)

    def check(self, n_bytes: int) -> None:
        """Raise StorageFull if `n_bytes` do not fit."""
        if n_bytes > self._left:
            raise self._full


# Unpack a compressed TAR into the folder of its job, because jobs read members in any order.
UNPACKED = "archive.unpacked"
"""What is unpacked, before it takes the place of the archive."""

RATIO = 20
"""Times its own size that a compressed TAR may unpack to; photos in it stay as they are."""


def unpack(folder: Path, limits: ArchiveLimits, most: int, room: Room) -> None:
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
            room.use(len(piece))
            file.write(piece)
    if size:
        os.replace(plain, packed)
    else:
        plain.unlink()


JSON, JSON_LINES = "application/json", ("application/x-ndjson", "application/jsonl")
FORM = "multipart/form-data"

PIECE = 1 << 18
"""Bytes that are collected before a thread takes them; each turn of a thread costs some 50 µs."""

SENT = "manifest.sent"
"""The manifest as it was sent, which is checked once the body has arrived."""

PARTS = {"manifest": SENT, "archive": ARCHIVE}
"""The parts of a form, and the files that they become."""

MOST_PARTS = 8

MOST_MEMBERS = 250_000
"""Members of one archive, of which `zipfile` keeps some 600 bytes each."""

FOLDER = 16 << 10
"""Bytes that the folder and the rows of a job are counted as, beside its files."""

THREADS = 3
"""Bodies of jobs that one process reads at the same time."""

BODIES = ThreadPoolExecutor(THREADS, "bodies of jobs")
"""Threads of their own, because an archive of gigabytes takes minutes: requests never wait here."""

TURNS = FairSemaphore(THREADS)
"""Turns at these threads: one client leaves at least one of them to the others."""


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

    Every byte that is written is counted in `room`.
    """

    folder: Path
    settings: Settings
    asked: bytes
    chunk: int
    room: Room
    client: str
    _size: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256(self.asked)
        members = min(MOST_MEMBERS, self.settings.max_job_items)
        self._limits = ArchiveLimits(members=members)

    async def receive(self, request: Request, kind: str) -> Received:
        """Write a body of media type `kind`; raises ServiceError, and OSError if the disk fails.

        The body is saved, then checked on a thread, as long as the client waits.
        """
        if kind == FORM:
            await self._form(request)
        else:
            name = ARCHIVE if kind in archive_items.MEDIA_TYPES else SENT
            await self._save(self.folder / name, request.stream())
        return await unless_left(ClientLeft(request), self._in_turn())

    async def _in_turn(self) -> Received:
        async with TURNS.hold(self.client):
            return await on_thread(BODIES, self._read, self._limits.stop)

    def _read(self) -> Received:
        """Make the manifest of what was saved; its items may be members of the archive."""
        sent, saved, settings = self.folder / SENT, self.folder / ARCHIVE, self.settings
        with ExitStack() as stack:
            archive = None
            if saved.exists():
                unpack(self.folder, self._limits, settings.max_job_bytes, self.room)
                archive = stack.enter_context(open_archive(saved, self._limits))
            longest = LONGEST_LINE + settings.max_image_bytes * 4 // 3
            writer = ManifestWriter(
                self.folder / MANIFEST,
                settings.max_job_items,
                longest,
                chunk=self.chunk,
                find=archive.find if archive else None,
                use=self.room.use,
            )
            stack.enter_context(closing(writer))
            if sent.exists():
                writer.read(sent)
                sent.unlink()
            for each in archive.members() if archive and not writer.total else ():
                writer.add(StoredLine(path=each.name, member=place_of(each)))
            if archive and not writer.total:
                raise MalformedRequest("the archive has no files")
            writer.finish()
        stored = FOLDER + writer.size
        if archive:
            sync_path(saved)
            stored += saved.stat().st_size
        return Received(writer.total, stored, writer.spans, self._digest.hexdigest())

    async def _form(self, request: Request) -> None:
        """Save the parts of a form."""
        events = segments(request, MOST_PARTS)
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
        if not (self.folder / ARCHIVE).exists():
            raise MalformedRequest("the form has no `archive`; a manifest alone needs no form")

    async def _save(self, path: Path, content: AsyncIterator[bytes]) -> None:
        async with aiofiles.open(path, "wb", opener=private) as file:
            async for piece in self._pieces(content):
                self.room.use(len(piece))
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


def too_large(most: int) -> TooLarge:
    """Return the error for a body of more than `most` bytes."""
    return TooLarge(f"the body has more than {most} bytes; make several jobs")


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
