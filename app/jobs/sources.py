"""Find the items of a job whose request has no manifest: in storage, or among failed items."""

import asyncio
import errno
import hashlib
import json
import os
import shutil
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.jobs.files import ARCHIVE, MANIFEST, DataFolder, sync_path
from app.jobs.manifest import LONGEST_ID, LONGEST_LINE, ManifestWriter, StoredLine, damaged
from app.jobs.receiving import FOLDER, Received, Room
from app.jobs.results import whole_lines
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import UNFINISHED, Job, State
from app.storage.local_files import Entry
from app.storage.location import Location
from app.storage.storage import Storage
from app.urls import MAX_URL
from models.domain.errors import InvalidParameter, NotFound, ResultsExpired
from models.settings import Settings

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
"""What file systems answer that have no further name for a file, or for no more of them."""


# A request for a job, as far as it is known before its body.
@dataclass(frozen=True, slots=True)
class JobSource:
    """Where the items of a job come from: files below `prefix`, or what failed in job `retry_of`.

    Exactly one is given; `include` are patterns of names below the prefix.
    """

    prefix: Location | None = None
    include: tuple[str, ...] = ()
    retry_of: str | None = None

    def __str__(self) -> str:
        """Return what makes two sources equal."""
        return json.dumps([str(self.prefix), self.include, self.retry_of])


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a client asks for: an operation with its options, and a key for repeated requests.

    Without a `source` the images are those of the body. `destination` is a storage address.
    """

    client: str
    operation: str
    options: dict[str, Any]
    key: str | None = None
    source: JobSource | None = None
    destination: str | None = None
    webhook: str | None = None
    concurrency: int | None = None


AT_ONCE, SIZE_AT_ONCE = 1000, 1 << 20
"""Items, and characters of their images, that a thread writes at a time."""


class _Failed(msgspec.Struct):
    """What a record says about its item."""

    index: int
    status: Literal["ok", "partial", "error"]


_DECODE = msgspec.json.Decoder(_Failed).decode
_LINE = msgspec.json.Decoder(StoredLine).decode


async def made_of(
    lines: AsyncIterable[StoredLine],
    folder: Path,
    settings: Settings,
    asked: bytes,
    chunk: int,
    empty: str,
    use: Callable[[int], None],
) -> Received:
    """Write items as the manifest of a job, in bounded memory; `asked` gives the digest.

    Chunks have at most `chunk` items. `use` is called, on a thread, with the number of bytes before
    they are written.

    Raises TooLarge, and InvalidParameter with the text `empty` where there is no item.
    """
    most = settings.max_job_items
    writer = ManifestWriter(folder / MANIFEST, most, LONGEST_LINE, chunk=chunk, use=use)
    with closing(writer):
        async for some in _groups(lines):
            await asyncio.to_thread(_add, writer, some)
        if not writer.total:
            raise InvalidParameter(empty)
        await asyncio.to_thread(writer.finish)
    digest = hashlib.sha256(asked).hexdigest()
    return Received(writer.total, FOLDER + writer.size, writer.spans, digest)


async def stored_lines(
    entries: AsyncIterable[Entry], prefix: Location, include: Sequence[str]
) -> AsyncIterator[StoredLine]:
    """Yield an item for each file whose name below the prefix matches one of `include`, or for
    all; its id is that name.
    """
    async for entry in entries:
        if include and not any(fnmatchcase(entry.name, each) for each in include):
            continue
        url = str(prefix.below(entry.name))
        if len(url) > MAX_URL:
            raise InvalidParameter(f"source: an address below it is longer than {MAX_URL}")
        id_ = entry.name.encode("utf-8", "replace").decode()
        yield StoredLine(id_ if len(id_) <= LONGEST_ID else None, url)


async def failed_lines(
    records: AsyncIterable[bytes],
    manifest: Path,
    total: int,
    *,
    unrecorded: bool = False,
) -> AsyncIterator[StoredLine]:
    """Yield the items of a manifest whose record is an error or partly one, in their order.

    With `unrecorded` those without a record too. An item without an id gets its number in the old
    manifest as id. It takes a bit for each item. Raises InternalError for a damaged manifest.
    """
    failed = bytearray((b"\xff" if unrecorded else b"\0") * (total // 8 + 1))
    async for text in whole_lines(records):
        await asyncio.to_thread(_mark, failed, text)
    with manifest.open("rb", buffering=1 << 20) as file:
        first = 0
        while some := await asyncio.to_thread(file.readlines, 1 << 20):
            for index, text in enumerate(some, first):
                if failed[index // 8] >> index % 8 & 1:
                    line = _parsed(text)
                    yield line if line.id else msgspec.structs.replace(line, id=f"{index}")
            first += len(some)


def _parsed(text: bytes) -> StoredLine:
    try:
        return _LINE(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise damaged() from None


def _mark(failed: bytearray, text: bytes) -> None:
    """Set the bits of failed items, and clear those of others; records are whole lines."""
    for each in text.splitlines():
        found = _DECODE(each)
        bit = 1 << found.index % 8
        if found.status == "ok":
            failed[found.index // 8] &= ~bit
        else:
            failed[found.index // 8] |= bit


async def _groups(lines: AsyncIterable[StoredLine]) -> AsyncIterator[list[StoredLine]]:
    group: list[StoredLine] = []
    size = 0
    async for line in lines:
        group.append(line)
        size += len(line.data or "")
        if len(group) == AT_ONCE or size > SIZE_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _add(writer: ManifestWriter, lines: Iterable[StoredLine]) -> None:
    for each in lines:
        writer.add(each)


class ManifestSources:
    """Makes manifests in chunks of `chunk` items; `results` yields the records of a job."""

    def __init__(
        self,
        storage: Storage,
        folder: DataFolder,
        rows: JobRows,
        settings: Settings,
        chunk: int,
        results: Callable[[Job], AsyncGenerator[bytes, None]],
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._rows = rows
        self._settings = settings
        self._chunk = chunk
        self._results = results

    async def manifest(
        self, asked: JobRequest, source: JobSource, folder: Path, digested: bytes, room: Room
    ) -> Received:
        """Write the manifest of a new job into its folder, counted in `room`.

        Raises ServiceError.
        """
        made = partial(
            made_of,
            folder=folder,
            settings=self._settings,
            asked=digested,
            chunk=self._chunk,
            use=room.use,
        )
        if source.prefix is not None:
            async with aclosing(self._storage.list(source.prefix)) as entries:
                lines = stored_lines(entries, source.prefix, source.include)
                empty = f"source: there is no file below {source.prefix}"
                return await made(lines, empty=empty)
        job = await self._ended(source.retry_of or "", asked.client)
        try:
            async with aclosing(self._results(job)) as records:
                lines = failed_lines(
                    records,
                    self._folder.of(job.id) / MANIFEST,
                    job.total,
                    unrecorded=job.state is State.FAILED,
                )
                empty = f"retry_of: no item of job {job.id} failed"
                found = await made(lines, empty=empty)
            archive = self._folder.of(job.id) / ARCHIVE
            if not archive.exists():
                await self._ended(job.id, asked.client)  # else it was removed with its archive
                return found
            await asyncio.to_thread(_shared, archive, folder / ARCHIVE, room.use)
        except FileNotFoundError:
            raise NotFound(f"job {job.id} was removed meanwhile, with its files") from None
        return replace(found, stored=found.stored + (folder / ARCHIVE).stat().st_size)

    async def _ended(self, id_: str, client: str) -> Job:
        """Return a job of a client whose results are all there."""
        job = await self._rows.find(id_, client)
        if job is None:
            raise NotFound(f"there is no job {id_[:64]!r} here; GET /jobs lists yours")
        if job.state in UNFINISHED:
            raise InvalidParameter(f"retry_of: job {job.id} is {job.state.value}; wait for its end")
        if job.state is State.EXPIRED:
            raise ResultsExpired("the results were kept for their time (DARKROOM_JOB_RETENTION)")
        return job


def _shared(archive: Path, other: Path, use: Callable[[int], None]) -> None:
    """Give a file another name, or copy it where the file system cannot do that.

    The file stays until both jobs are removed. Raises OSError, and what `use` raises.
    """
    try:
        os.link(archive, other)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        use(archive.stat().st_size)
        shutil.copyfile(archive, other, follow_symlinks=False)
        other.chmod(0o600)
        sync_path(other)
