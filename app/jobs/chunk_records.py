"""The records of a chunk in work, and how finished chunks reach a results file."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from app.jobs.files import private, sync_path
from app.jobs.store.values import Claim, Stored

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
