"""Find the items of a job whose request has no manifest: in storage, or among failed items."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.jobs.files import ARCHIVE, MANIFEST, DataFolder, private, sync_path
from app.jobs.listing import Asked, Source, failed_lines, made_of, stored_lines
from app.jobs.receiving import Received
from app.jobs.room import Reservation
from app.jobs.store.jobs import JobRows
from app.jobs.store.values import UNFINISHED, Job, State
from app.storage.storage import Storage
from models.domain.errors import InvalidParameter, NotFound
from models.domain.job_errors import ResultsExpired
from models.settings import Settings

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
"""What file systems answer that have no further name for a file, or for no more of them."""

PIECE = 1 << 20
"""Bytes that are copied at a time."""


class Sources:
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
        self, asked: Asked, source: Source, folder: Path, digested: bytes, room: Reservation
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
            use=room.use_on_thread,
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
            await asyncio.to_thread(_shared, archive, folder / ARCHIVE, room.use_on_thread)
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

    The file stays until both jobs are removed. `use` is called with the bytes of each piece of a
    copy before it is written. Raises OSError, and what `use` raises.
    """
    try:
        os.link(archive, other)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with archive.open("rb") as source, open(other, "wb", opener=private) as copy:
            while piece := source.read(PIECE):
                use(len(piece))
                copy.write(piece)
        sync_path(other)
