"""Commit finished chunks: sync their records to a file, then let the database count them."""

import asyncio
import logging
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from sqlalchemy.exc import SQLAlchemyError

from app.jobs.files import DataFolder, private, sync_path
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.values import Claim, Stored

# The records of a chunk in work, and how finished chunks reach a results file.
IN_MEMORY = 1 << 20
"""Bytes of the records of one chunk that stay in memory; images in records are larger."""


class ChunkRecords:
    """The records of one chunk in the order in which they are made."""

    def __init__(self, claim: Claim, folder: Path) -> None:
        self.claim = claim
        self.count = self.failed = self.size = 0
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder))  # noqa: SIM115 (`__exit__`)
        self._writing = asyncio.Lock()

    def __enter__(self) -> "ChunkRecords":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    async def add(self, record: bytes, *, failed: bool) -> None:
        """Add the record of an item, which is one line."""
        async with self._writing:
            if self.size + len(record) > IN_MEMORY:
                await asyncio.to_thread(self._file.write, record)
            else:
                self._file.write(record)
            self.size += len(record)
            self.count += 1
            self.failed += failed

    def append_to(self, descriptor: int, name: str) -> Stored:
        """Append all records to an open results file; its end is not synced yet."""
        at = os.lseek(descriptor, 0, os.SEEK_END)
        self._file.seek(0)
        with os.fdopen(os.dup(descriptor), "ab") as results:
            shutil.copyfileobj(self._file, results, IN_MEMORY)
        return Stored(self.claim, name, at, self.size, self.count, self.failed)


def store(chunks: Sequence[ChunkRecords], folder: Path, owner: str) -> list[Stored]:
    """Append chunks of one job to the results file of `owner` and sync them; blocks."""
    name = f"results-{owner}.jsonl"
    new = not (folder / name).exists()
    descriptor = private(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        stored = [each.append_to(descriptor, name) for each in chunks]
        os.fsync(descriptor)
        if new:
            sync_path(folder)
    except BaseException:
        if new:  # or the next call would find it, and leave its name unsynced
            os.unlink(folder / name)
        raise
    finally:
        os.close(descriptor)
    return stored


log = logging.getLogger("darkroom.jobs")

AGAIN = 1.0
"""Seconds after which a database that does not answer is asked again."""

Finished = tuple[ChunkRecords, asyncio.Future[bool]]
"""A chunk whose items are all done, and whether its records count, once that is known."""


class Committer:
    """Commits the chunks of one process; those that wait meanwhile share a sync and a transaction.

    With 15,000 images a second, one sync for each chunk would be more than disks do.
    """

    def __init__(self, folder: DataFolder, rows: ChunkRows, owner: str, retention: float) -> None:
        self._folder = folder
        self._rows = rows
        self._owner = owner
        self._retention = retention
        self._queue: asyncio.Queue[Finished] = asyncio.Queue()

    async def commit(self, chunk: ChunkRecords) -> bool:
        """Return True when the records of a chunk count, False if another process took it over.

        Raises OSError where the disk does not take them.
        """
        finished: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((chunk, finished))
        return await finished

    async def run(self) -> None:
        """Commit until this is cancelled."""
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get_nowait())
            waiting = [each for each in batch if not each[1].done()]
            try:
                await self._commit(waiting)
            except Exception as error:  # a fault of ours: these chunks fail, and others go on
                for _, finished in waiting:
                    if not finished.done():
                        finished.set_exception(error)

    async def _commit(self, batch: list[Finished]) -> None:
        by_job: dict[str, list[ChunkRecords]] = defaultdict(list)
        for chunk, _ in batch:
            by_job[chunk.claim.job].append(chunk)
        stored: list[Stored] = []
        failed: dict[str, OSError | ValueError] = {}
        for job, chunks in by_job.items():
            folder = self._folder.of(job)
            try:
                stored += await asyncio.to_thread(store, chunks, folder, self._owner)
            # The disk is full, or the job was removed; ValueError: its work was cancelled, which
            # closes the records of all its chunks.
            except (OSError, ValueError) as error:
                failed[job] = error
        kept = {(each.claim.job, each.claim.number) for each in await self._counted(stored)}
        for chunk, finished in batch:
            if finished.done():
                continue
            if chunk.claim.job in failed:
                finished.set_exception(failed[chunk.claim.job])
            else:
                finished.set_result((chunk.claim.job, chunk.claim.number) in kept)

    async def _counted(self, stored: list[Stored]) -> list[Stored]:
        """Commit records that are synced; wait for a database that does not answer."""
        while stored:
            try:
                return await self._rows.commit(stored, self._owner, self._retention)
            except (SQLAlchemyError, OSError) as error:
                log.warning("the database of jobs does not answer; trying again: %s", error)
                await asyncio.sleep(AGAIN)
        return []
