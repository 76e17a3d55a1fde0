"""Read the results of a job: committed records, and records that come while a client follows.

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
from dataclasses import dataclass, field
from io import FileIO
from typing import Any, Literal

import msgspec
import numpy as np

from app.archives.zip_writer import Pipe, ZipWriter
from app.jobs.files import DataFolder
from app.jobs.store import UNFINISHED, DatabaseFailed, Job, JobStore, ResultRun, State
from models.domain.errors import Cancelled

RESULTS, IMAGES = "results.jsonl", "images"
"""The file that has the records, and the folder of the images: in a ZIP, and at a destination."""

FOLLOW = 0.5
"""Seconds between two looks for new results of a job that a client follows."""

SILENCE = 15.0
"""Seconds without a record after which an empty line is sent; proxies wait for 30 and more."""

PIECE = 1 << 18
"""Bytes that are read, or of an image that are sent, at a time."""

RUNS = 1000
"""Runs of results that one query finds."""

Records = AsyncGenerator[bytes, None]
"""Records as JSON Lines, in pieces of any size."""

Pieces = AsyncGenerator[bytes | memoryview, None]

log = logging.getLogger("darkroom.jobs")

_DECODE = msgspec.json.Decoder(dict[str, Any]).decode
_ENCODE = msgspec.json.Encoder().encode


@dataclass
class OpenResults:
    """Records of a job from number `offset` up to `end`, which is left out; None means up to the
    last.

    With `stopping` the records of a job that still runs are waited for, until it returns True: a
    reader goes on elsewhere then, at the end of a line; a reader that needs the `whole` sees its
    connection break.
    """

    job: Job
    store: JobStore
    folder: DataFolder
    offset: int
    end: int | None
    stopping: Callable[[], bool] | None = None
    on_close: Callable[[], None] | None = None
    whole: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._runs: list[ResultRun] = []
        self._known = self.offset
        self._files: dict[str, FileIO] = {}

    async def open(self) -> bool:
        """Find all records that are committed now; return False where some are gone already."""
        try:
            while await self._more():
                pass
        except FileNotFoundError:
            return False
        return self._known >= self.job.done or self._is_end(self._known)

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records as JSON Lines; a second call yields the same records again.

        An empty line is sent after each SILENCE without a record. Raises Cancelled where the rest
        cannot be read here.
        """
        at, sent, number = self.offset, time.monotonic(), 0
        while not self._is_end(at):
            if number < len(self._runs):
                rows = self._runs[number]
                number += 1
                last = rows.row + rows.n_items
                last = last if self.end is None else min(last, self.end)
                async with aclosing(self._pieces(rows, at, last)) as pieces:
                    async for piece in pieces:
                        cut = piece.find(b"\n") + 1 if self._leaves() else 0
                        yield piece[: cut or None]
                        if cut:
                            return
                at, sent = last, time.monotonic()
            elif self.stopping is None:
                return
            elif await self._are_complete():
                self.stopping = None
            elif number == len(self._runs):
                if self._leaves():
                    return
                if time.monotonic() - sent > SILENCE:
                    sent = time.monotonic()
                    yield b"\n"
                await asyncio.sleep(FOLLOW)

    async def aclose(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()

    async def _are_complete(self) -> bool:
        """Look for records of a job that is followed; return whether no more will come."""
        try:
            state = (await self.store.states([self.job.id])).get(self.job.id)
            # After the state: results that come with the end of the job are not missed.
            found = await self._more()
        except (DatabaseFailed, OSError) as error:  # the database may answer again
            log.warning("the results of job %s cannot be followed: %s", self.job.id, error)
            return False
        if state in (None, State.EXPIRED):
            raise _broken()
        return state not in UNFINISHED and found < RUNS

    def _leaves(self) -> bool:
        leaves = self.stopping is not None and self.stopping()
        if leaves and self.whole:
            raise _broken()
        return leaves

    def _is_end(self, at: int) -> bool:
        return self.end is not None and at >= self.end

    async def _more(self) -> int:
        """Find runs of records that were not known, and open their files; return their number.

        Raises FileNotFoundError.
        """
        if self._is_end(self._known):
            return 0
        found = await self.store.results(self.job.id, self._known, RUNS)
        for rows in found:
            if rows.file not in self._files:
                path = self.folder.of(self.job.id) / rows.file
                self._files[rows.file] = await asyncio.to_thread(FileIO, path)
            self._known = rows.row + rows.n_items
        self._runs += found
        return len(found)

    async def _pieces(self, rows: ResultRun, first: int, last: int) -> AsyncGenerator[bytes, None]:
        """Yield the records from number `first` up to `last`, which is left out, all of the same
        run.
        """
        file, at, end = self._files[rows.file], rows.at, rows.at + rows.length
        skip, wanted, seen = max(0, first - rows.row), last - rows.row, 0
        while at < end and seen < wanted:
            piece = await asyncio.to_thread(os.pread, file.fileno(), min(PIECE, end - at), at)
            if not piece:
                raise OSError(f"the results of job {self.job.id} end before byte {end}")
            at += len(piece)
            start, n_lines = _after(piece, skip - seen), piece.count(b"\n")
            stop = len(piece) if seen + n_lines < wanted else _after(piece, wanted - seen)
            seen += n_lines
            if start < stop:
                yield piece[start:stop]


def _broken() -> Cancelled:
    return Cancelled("the rest of the results cannot be sent")


async def results_zip(
    read: Callable[[], Records], chosen: Callable[[Records], Records], *, images: bool
) -> Pieces:
    """Yield a ZIP of the results of a job: the images in the order of their records, then the
    records.

    `read` returns the records; its second call returns the same records. `chosen` leaves some of
    them out. Without `images` the ZIP has no images. Records are read twice, so that memory is
    constant and nothing is written to disk: beside the pieces of a read there is a single record in
    memory.
    """
    with ZipWriter() as archive:
        if images:
            async with aclosing(chosen(read())) as records:
                async for text in whole_lines(records):
                    for name, content in await asyncio.to_thread(_images, text):
                        yield archive.begin(name, len(content))
                        for start in range(0, len(content), PIECE):
                            archive.add(piece := content[start : start + PIECE])
                            yield piece
                        yield archive.end()
        yield archive.begin(RESULTS)
        async with aclosing(chosen(read())) as records:
            async for text in whole_lines(records):
                named, _ = await asyncio.to_thread(_taken, text)
                archive.add(named)
                yield named
        yield archive.end()
        for end in archive.finish():
            yield end


def decoded(text: bytes) -> list[dict[str, Any]]:
    """Return some records; an empty line only says that no record has come for long."""
    return [_DECODE(line) for line in text.splitlines() if line]


def _images(text: bytes) -> list[tuple[str, memoryview]]:
    """Return the images of some records, by the names of their members."""
    return [(name, memoryview(base64.b64decode(data))) for name, data in _taken(text)[1]]


def _taken(text: bytes) -> tuple[bytes, list[tuple[str, str]]]:
    """Return records whose images have the names of their members in place of base64, and these
    names with the base64.
    """
    records, images = decoded(text), list[tuple[str, str]]()
    for record in records:
        for each in (record, *record.get("versions", ())):
            shown = each.get("image")
            if shown is not None and (data := shown.pop("data", None)) is not None:
                shown["name"] = f"{IMAGES}/{shown['name']}"
                images.append((shown["name"], data))
    return b"".join(_ENCODE(record) + b"\n" for record in records), images


class Outcome(msgspec.Struct):
    """The outcome of an item by its record."""

    index: int
    status: Literal["ok", "partial", "error"]


_OUTCOME = msgspec.json.Decoder(Outcome).decode


def outcomes(text: bytes) -> Iterator[tuple[Outcome, bytes]]:
    """Yield the outcomes of records, which are whole lines, with the lines."""
    return ((_OUTCOME(each), each) for each in text.splitlines(True) if each != b"\n")


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
    return b"".join(each for found, each in outcomes(text) if found.status != "ok")


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


ROWS, GROUP = 8192, 16 << 20
"""Rows, and bytes of records, of a row group of Parquet, unless it is one record."""


async def results_parquet(records: Records) -> Pieces:
    """Yield a Parquet file of records, a row for each; a column without a value is null.

    The columns of all operations are there. Memory holds a single row group.
    """
    import pyarrow as pa  # an extra
    import pyarrow.parquet as pq

    text, number, vector = pa.string(), pa.int64(), pa.list_(pa.float32())
    label = [("label", text), ("wnid", text), ("class_id", pa.int32()), ("score", pa.float64())]
    image = [("name", text), ("media_type", text), ("width", number), ("height", number)]
    image += [("bytes", number), ("quality", number), ("data", pa.binary())]
    own = [("index", number), ("id", text), ("status", text), ("image", pa.struct(image))]
    own += [("error", pa.struct([("code", text), ("detail", text)]))]
    more = [("source", text), ("predictions", pa.list_(pa.struct(label))), ("logits", vector)]
    more += [("embedding", vector), ("versions", pa.list_(pa.struct(own)))]
    schema = pa.schema([*own, *more])
    pipe, rows, size = Pipe(), list[dict[str, Any]](), 0
    with pq.ParquetWriter(pa.PythonFile(pipe, "w"), schema, compression="zstd") as writer:
        async for lines in whole_lines(records):
            rows += await asyncio.to_thread(_rows, lines)
            size += len(lines)
            if len(rows) >= ROWS or size >= GROUP:
                await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(rows, schema))
                yield pipe.taken()
                rows, size = [], 0
        if rows:
            await asyncio.to_thread(writer.write_table, pa.Table.from_pylist(rows, schema))
    yield pipe.taken()


def _rows(text: bytes) -> list[dict[str, Any]]:
    """Return records with the bytes of images, and the numbers of vectors, in place of base64."""
    records = decoded(text)
    for record in records:
        for name in {"logits", "embedding"} & record.keys():
            if isinstance(record[name], str):
                record[name] = np.frombuffer(base64.b64decode(record[name]), "<f4")
        for each in (record, *record.get("versions", ())):
            if image := each.get("image"):
                image["data"] = base64.b64decode(image["data"]) if "data" in image else None
    return records
