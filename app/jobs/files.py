"""The data folder: a folder for each job, with its manifest, its archive and its results.

Results are appended to files that belong to a single process each, and the database names the bytes
that count. So a torn end of a file, after a crash, is never read.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

JOBS, MANIFEST, ARCHIVE = "jobs", "manifest.jsonl", "archive"

DATABASE, LOCK = "jobs.sqlite3", "lock"

ABANDONED = 86400.0
"""Seconds without a write after which a folder that is no job's is removed: the body of its job has
broken off long ago."""

T = TypeVar("T")

log = logging.getLogger("darkroom.jobs")


class DataFolder:
    """The files of all jobs below `root`. Methods that are no coroutines block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs = root / JOBS

    def make(self) -> None:
        """Make the folder; the text of ValueError says why it cannot be used."""
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for each in (self.root, self._jobs):
                each.mkdir(exist_ok=True, mode=0o700)
            try:
                self.root.chmod(0o700)
            except PermissionError as error:
                text = "others may use %s, which only this server should: %s"
                log.warning(text, self.root, error.strerror)
            TemporaryFile(dir=self._jobs).close()
            for each in (self._jobs, self.root):
                sync_path(each)
        except OSError as error:
            raise ValueError(
                f"DARKROOM_DATA_FOLDER {self.root} cannot be written: {error.strerror}"
            ) from None

    def of(self, job: str) -> Path:
        """Return the folder of a job."""
        return self._jobs / job

    def sync(self, job: str) -> None:
        """Let the folder of a job and the names of its files survive a power failure."""
        sync_path(self.of(job))
        sync_path(self._jobs)

    def remove(self, job: str) -> None:
        """Remove all files of a job; does nothing if there are none."""
        shutil.rmtree(self.of(job), ignore_errors=True)

    def unchanged(self) -> list[str]:
        """Return the names of folders in which nothing was written for ABANDONED seconds."""
        before, found = time.time() - ABANDONED, list[str]()
        for folder in self._jobs.iterdir():
            with suppress(OSError):  # another process is removing it
                if max(each.stat().st_mtime for each in (folder, *folder.iterdir())) < before:
                    found.append(folder.name)
        return found


def private(path: str | Path, flags: int) -> int:
    """Open a file that only its owner may read, as `opener` of `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def sync_path(path: Path) -> None:
    """Let the content of a file, or the names in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for work whose end must be known: a caller that is cancelled waits for it, too."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it is retrieved, or asyncio would log it
        raise
