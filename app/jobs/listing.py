"""Make the manifest of a job from what storage has: a prefix, or the failed items of a job."""

import asyncio
import hashlib
import json
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.jobs.files import MANIFEST
from app.jobs.manifest import LONGEST_ID, LONGEST_LINE, ManifestWriter, StoredLine, damaged
from app.jobs.receiving import FOLDER, Received
from app.jobs.results import SILENCE, whole_lines
from app.storage.local_files import Entry
from app.storage.location import Location
from app.urls import MAX_URL
from models.domain.errors import InvalidParameter
from models.settings import Settings


# A request for a job, as far as it is known before its body.
@dataclass(frozen=True, slots=True)
class Source:
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
class Asked:
    """What a client asks for: an operation with its options, and a key for repeated requests.

    Without a `source` the images are those of the body. `destination` is a storage address.
    """

    client: str
    operation: str
    options: dict[str, Any]
    key: str | None = None
    source: Source | None = None
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


async def failed_records(records: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the records of items that failed, wholly or partly, in pieces of whole lines.

    An empty line is sent after each SILENCE in which no item failed.
    """
    sent = time.monotonic()
    async for text in whole_lines(records):
        kept = await asyncio.to_thread(_chosen, text)
        if not kept and time.monotonic() - sent > SILENCE:
            kept = b"\n"
        if kept:
            sent = time.monotonic()
            yield kept


def _chosen(text: bytes) -> bytes:
    lines = text.splitlines(True)
    return b"".join(each for each in lines if each != b"\n" and _DECODE(each).status != "ok")


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
