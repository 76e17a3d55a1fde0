"""Read the results of a job: those that are committed, and those that come while a client follows.

The files of results are opened before the first byte is sent, so results that expire or are removed
meanwhile are read to their end.
"""

import asyncio
import base64
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from enum import Enum, auto
from io import FileIO
from typing import Any, Literal

import msgspec

from app.archives.zip_writer import ZipWriter
from app.jobs.files import DataFolder
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import UNFINISHED, Job, ResultRun, State
from models.codec import ImageFormat
from models.domain.errors import Cancelled

# Write the results of a job as a ZIP: its images as files, and all records without their base64.
# Records are read twice, for the images and for `results.jsonl`, so that memory is constant and
# nothing is written to disk: beside the pieces of one read there is one record in memory.
RESULTS, IMAGES = "results.jsonl", "images"
"""The member that has the records, and the folder of the images."""

IMAGE_PIECE = 1 << 18
"""Bytes of an image that are sent at a time."""

Records = AsyncGenerator[bytes, None]
"""Records as JSON Lines, in pieces of any size."""

Pieces = AsyncGenerator[bytes | memoryview, None]

_EXTENSIONS = {each.media_type: each.extension for each in ImageFormat}
_DECODE = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


async def results_zip(
    read: Callable[[], Records], chosen: Callable[[Records], Records], *, images: bool
) -> Pieces:
    """Yield a ZIP of the results of a job: the images in the order of their records, then those.

    `read` returns the records; its second call returns the same ones. `chosen` leaves some of them
    out. Without `images` the ZIP has no images.
    """
    with ZipWriter() as archive:
        if images:
            async with aclosing(chosen(read())) as records:
                async for text in whole_lines(records):
                    for name, content in await asyncio.to_thread(_images, text):
                        yield archive.begin(name, len(content))
                        for start in range(0, len(content), IMAGE_PIECE):
                            archive.add(piece := content[start : start + IMAGE_PIECE])
                            yield piece
                        yield archive.end()
        yield archive.begin(RESULTS)
        async with aclosing(chosen(read())) as records:
            async for text in whole_lines(records):
                archive.add(named := await asyncio.to_thread(_named, text))
                yield named
        yield archive.end()
        for end in archive.finish():
            yield end


def _records(text: bytes) -> list[dict[str, Any]]:
    """Return some records; an empty line only says that no record has come for long."""
    return [_DECODE(line) for line in text.splitlines() if line]


def _images(text: bytes) -> list[tuple[str, memoryview]]:
    """Return the images of some records, by the names of their members."""
    return [
        (shown["name"], memoryview(base64.b64decode(data)))
        for record in _records(text)
        for shown, data in _taken(record)
    ]


def _named(text: bytes) -> bytes:
    """Return records whose images have the names of their members in place of base64."""
    records = _records(text)
    for record in records:
        for _ in _taken(record):
            pass
    return b"".join(_ENCODE(record) + b"\n" for record in records)


def _taken(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Take the base64 of the images out of a record; yield both, with the names of their members.

    Records of earlier releases have no names: their images are called by the number of the item.
    """
    stem = f"{record['index']:04d}"
    found = [(stem, record.get("image"))]
    versions = enumerate(record.get("versions", ()))
    found += [(f"{stem}-{number}", each.get("image")) for number, each in versions]
    for number, shown in found:
        if shown is not None and (data := shown.pop("data", None)) is not None:
            name = shown.get("name") or number + _EXTENSIONS[shown["media_type"]]
            shown["name"] = f"{IMAGES}/{name}"
            yield shown, data


log = logging.getLogger("darkroom.jobs")

FOLLOW = 0.5
"""Seconds between two looks for new results of a job that clients follow."""

SILENCE = 15.0
"""Seconds without a record after which an empty line is sent; proxies wait for 30 and more."""

PIECE = 1 << 18
"""Bytes that are read at a time."""

RUNS = 1000
"""Runs of results that one query finds."""


class End(Enum):
    """Why no more results come: the job has ended, it is gone, or the server stops."""

    OF_JOB = auto()
    GONE = auto()
    STOPPING = auto()


class Following:
    """Look for new results of followed jobs: one task a job, whatever the number of followers.

    `stopping` says whether followers shall go on elsewhere.
    """

    def __init__(self, jobs: JobRows, chunks: ChunkRows, stopping: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._chunks = chunks
        self.stopping = stopping
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._followers: dict[str, set[asyncio.Queue[list[ResultRun] | End]]] = {}

    def join(self, job: Job) -> "asyncio.Queue[list[ResultRun] | End]":
        """Return a queue of the results that come from now on, with an End as its last element.

        The queue may begin with results that a later query finds too.
        """
        queue = asyncio.Queue[list[ResultRun] | End]()
        self._followers.setdefault(job.id, set()).add(queue)
        if job.id not in self._tasks:
            self._tasks[job.id] = asyncio.create_task(self._look(job.id, job.done))
        return queue

    def leave(self, job: str, queue: "asyncio.Queue[list[ResultRun] | End]") -> None:
        """Stop following a job; its task ends soon after its last follower.

        The task is not cancelled: aiosqlite may wait without end to close a cancelled connection.
        """
        if job in self._followers:
            self._followers[job].discard(queue)

    async def aclose(self) -> None:
        """Wait until all tasks have ended, which they do by themselves when the server stops."""
        await asyncio.gather(*self._tasks.values())

    async def _look(self, job: str, row: int) -> None:
        """Give results from `row` on to all followers, until there are no more of either."""
        end: End | None = None
        while end is None and self._followers[job]:
            found = list[ResultRun]()
            try:
                state = (await self._jobs.states([job])).get(job)
                # After the state: results that come with the end of the job are not missed.
                found = await self._chunks.results(job, row, RUNS)
            except Exception as error:  # the database may answer again
                log.warning("the results of job %s cannot be followed: %s", job, error)
            else:
                if state in (None, State.EXPIRED):
                    end = End.GONE
                elif state not in UNFINISHED and len(found) < RUNS:
                    end = End.OF_JOB
            if end is None and self.stopping():
                end = End.STOPPING
            if found:
                row = found[-1].row + found[-1].count
            for queue in self._followers[job]:
                if found:
                    queue.put_nowait(found)
                if end is not None:
                    queue.put_nowait(end)
            if end is None and len(found) < RUNS:
                await asyncio.sleep(FOLLOW)
        del self._tasks[job], self._followers[job]


class OpenResults:
    """Records of a job from number `offset` to the one before `end`; None means to the last one.

    With `following` the records of a job that still runs are waited for. A reader of them goes on
    elsewhere when the server stops, at the end of a line; a reader that needs the `whole` sees its
    connection break then.
    """

    def __init__(
        self,
        job: Job,
        folder: DataFolder,
        offset: int,
        end: int | None,
        following: Following | None = None,
        *,
        whole: bool = False,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._folder = folder
        self._offset, self._end = offset, end
        self._following = following
        self._queue = following.join(job) if following else None
        self._whole = whole
        self._on_close: Callable[[], None] | None = on_close
        self._runs: list[ResultRun] = []
        self._known = offset
        self._files: dict[str, FileIO] = {}

    async def open(self, chunks: ChunkRows) -> bool:
        """Find all records that are committed now; return False where some are gone already."""
        try:
            while found := await chunks.results(self._job.id, self._known, RUNS):
                for rows in found:
                    await self._add(rows)
                if self._is_end(self._known):
                    break
        except FileNotFoundError:
            return False
        return self._known >= self._job.done or self._is_end(self._known)

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records as JSON Lines; a second call yields the same ones again.

        An empty line is sent after each SILENCE without a record. Raises Cancelled where the rest
        cannot be read here.
        """
        at = self._offset
        async with aclosing(self._all()) as runs:
            while not self._is_end(at):
                rows = await anext(runs, End.OF_JOB)
                if rows is End.OF_JOB:
                    return
                if rows is None:
                    yield b"\n"
                    continue
                assert isinstance(rows, ResultRun)
                last = rows.row + rows.count
                last = last if self._end is None else min(last, self._end)
                async with aclosing(self._pieces(rows, at, last)) as pieces:
                    async for piece in pieces:
                        left = self._following is not None and self._following.stopping()
                        cut = piece.find(b"\n") + 1 if left else 0
                        yield piece[: cut or None]
                        if cut:
                            self._check(End.STOPPING)
                            return
                at = last

    async def aclose(self) -> None:
        """Close the files, and stop following."""
        if self._following is not None and self._queue is not None:
            self._following.leave(self._job.id, self._queue)
        for file in self._files.values():
            file.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    async def _all(self) -> AsyncGenerator[ResultRun | None, None]:
        """Yield the runs that are known, then those that come; None after each SILENCE."""
        for rows in [*self._runs]:
            yield rows
        while self._queue is not None:
            try:
                # `wait_for` of Python 3.11 drops a cancellation that comes with the element.
                async with asyncio.timeout(SILENCE):
                    found = await self._queue.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(found, End):
                self._queue = None
                self._check(found)
                return
            for rows in found:
                if rows.row >= self._known:  # the first query has not found it
                    await self._add(rows)
                    yield rows

    def _check(self, end: End) -> None:
        if end is End.GONE or (end is End.STOPPING and self._whole):
            raise Cancelled("the rest of the results cannot be sent")

    def _is_end(self, at: int) -> bool:
        return self._end is not None and at >= self._end

    async def _add(self, rows: ResultRun) -> None:
        """Remember a run, as part of the one before where both are neighbours in one file.

        The first run stays alone, because the lines before `offset` in it are read in vain. Raises
        FileNotFoundError.
        """
        if rows.file not in self._files:
            path = self._folder.of(self._job.id) / rows.file
            self._files[rows.file] = await asyncio.to_thread(FileIO, path)
        self._known = rows.row + rows.count
        last = self._runs[-1] if len(self._runs) > 1 else None
        if last is not None and (last.file, last.at + last.length) == (rows.file, rows.at):
            count, length = last.count + rows.count, last.length + rows.length
            self._runs[-1] = replace(last, count=count, length=length)
        else:
            self._runs.append(rows)

    async def _pieces(self, rows: ResultRun, first: int, last: int) -> AsyncGenerator[bytes, None]:
        """Yield the records from number `first` to the one before `last`, all of one run."""
        file, at, end = self._files[rows.file], rows.at, rows.at + rows.length
        skip, wanted, seen = max(0, first - rows.row), last - rows.row, 0
        while at < end and seen < wanted:
            piece = await asyncio.to_thread(os.pread, file.fileno(), min(PIECE, end - at), at)
            if not piece:
                raise OSError(f"the results of job {self._job.id} end before byte {end}")
            at += len(piece)
            start, n_lines = _after(piece, skip - seen), piece.count(b"\n")
            stop = len(piece) if seen + n_lines < wanted else _after(piece, wanted - seen)
            seen += n_lines
            if start < stop:
                yield piece[start:stop]


class _Status(msgspec.Struct):
    """What a record says about its item."""

    status: Literal["ok", "partial", "error"]


_STATUS = msgspec.json.Decoder(_Status).decode


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
    return b"".join(each for each in lines if each != b"\n" and _STATUS(each).status != "ok")


async def whole_lines(records: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the text in pieces that end at ends of lines.

    A line of many pieces is copied once: records with images have hundreds of them.
    """
    parts: list[bytes] = []
    async for piece in records:
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, piece[:end]])
            parts = []
        parts.append(piece[end:])


def _after(piece: bytes, n_lines: int) -> int:
    """Return the place after a number of line ends, or the end of the piece."""
    place = 0
    for _ in range(n_lines):
        place = piece.find(b"\n", place) + 1
        if not place:
            return len(piece)
    return place
