"""Make a job of a request: receive its body, and queue it once it is on disk."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable

from fastapi import Request

from app.jobs.files import DataFolder
from app.jobs.ids import new_id
from app.jobs.store.endings import DESTINATION, WAITING, WEBHOOK, Ending
from app.jobs.store.jobs import JobRows
from app.jobs.store.values import Job, State
from app.jobs.submission.asked import Asked
from app.jobs.submission.receiving import Receiver
from app.jobs.submission.room import DataRoom, Reservation, too_large
from app.jobs.submission.sources import Sources
from models.domain.errors import Overloaded
from models.domain.job_errors import IdempotencyMismatch, StorageFull, TooManyJobs
from models.settings import Settings

ARRIVING = 16
"""Bodies of jobs that one process receives at a time."""

ARRIVING_OF_ONE = 4
"""Those of them that one client may send, so that slow ones of it keep no place from others."""


class Acceptance:
    """Accepts jobs for one process, in chunks of `chunk` items; calls `on_queued` after each."""

    def __init__(
        self,
        folder: DataFolder,
        rows: JobRows,
        room: DataRoom,
        settings: Settings,
        chunk: int,
        on_queued: Callable[[], None],
        sources: Sources,
    ) -> None:
        self._sources = sources
        self._folder = folder
        self._rows = rows
        self._room = room
        self._settings = settings
        self._chunk = chunk
        self._on_queued = on_queued
        self._arriving = Counter[str]()

    async def accept(self, asked: Asked, request: Request, kind: str, n_bytes: int) -> Job:
        """Return the queued job of a body of media type `kind`, which announces `n_bytes` or 0.

        With a key that the client used before it is the job of that time. Raises ServiceError.
        """
        before = self._take_place(asked.client, n_bytes)
        try:
            await self._check(asked, n_bytes, before)
            async with self._room.reservation() as room:
                return await self._received(asked, request, kind, room)
        finally:
            self._arriving[asked.client] -= 1
            self._arriving += Counter()  # forgets clients of which nothing arrives

    def _take_place(self, client: str, n_bytes: int) -> int:
        """Count one more body of a client, and return the number that arrive already.

        Raises TooLarge, Overloaded and TooManyJobs. Nothing is awaited between the check
        and the count, or many bodies would pass at once.
        """
        if n_bytes > self._settings.max_job_bytes:
            raise too_large(self._settings.max_job_bytes)
        if self._arriving.total() >= ARRIVING:
            raise Overloaded(f"{ARRIVING} bodies of jobs are arriving; try again later", 5.0)
        arriving = self._arriving[client]
        if arriving >= ARRIVING_OF_ONE:
            raise TooManyJobs(
                f"{arriving} bodies of your jobs are arriving; send the next when one has arrived",
                retry_after=5.0,
            )
        self._arriving[client] += 1
        return arriving

    async def _check(self, asked: Asked, n_bytes: int, arriving: int) -> None:
        """Raise the error of a body that is refused before it is read."""
        settings = self._settings
        usage = await self._rows.usage(asked.client)
        most = settings.max_jobs_per_client
        repeated = asked.key and await self._rows.by_key(asked.client, asked.key)
        if usage.unfinished + arriving >= most and not repeated:
            raise TooManyJobs(
                f"{usage.unfinished + arriving} of your jobs are not finished; {most} may be "
                "(DARKROOM_MAX_JOBS_PER_CLIENT); wait for one, or cancel one",
                retry_after=30.0,
            )
        if usage.stored + n_bytes > settings.max_data_bytes:
            raise StorageFull(
                f"jobs store {usage.stored} bytes; {settings.max_data_bytes} may be stored "
                "(DARKROOM_MAX_DATA_BYTES); delete finished jobs, or wait until some expire"
            )

    async def _received(self, asked: Asked, request: Request, kind: str, room: Reservation) -> Job:
        id_, files = new_id(), self._folder
        folder = await asyncio.to_thread(files.add, id_)
        queued: Job | None = None
        digested = json.dumps([kind, *_equal(asked)], sort_keys=True).encode()
        try:
            if asked.source is None:
                receiver = Receiver(folder, self._settings, digested, self._chunk, room)
                found = await receiver.receive(request, kind)
            else:
                found = await self._sources.manifest(asked, asked.source, folder, digested, room)
            new = Job(
                id=id_,
                client=asked.client,
                state=State.QUEUED,
                operation=asked.operation,
                options=asked.options,
                total=found.total,
                done=0,
                failed=0,
                stored=found.stored,
                created=time.time(),
                key=asked.key,
                digest=found.digest,
                destination=asked.destination,
                concurrency=asked.concurrency,
            )
            queued = await self._rows.add(new, found.spans, _endings(id_, asked))
        except OSError as error:
            raise StorageFull(f"the data folder takes no more: {error.strerror}") from None
        finally:
            if queued is None or queued.id != id_:
                await asyncio.to_thread(files.remove, id_)
        if queued.digest != found.digest:
            raise IdempotencyMismatch(
                "this Idempotency-Key was used for another body, operation or options; take a new "
                "key for new work"
            )
        self._on_queued()
        return queued


def _equal(asked: Asked) -> list[object]:
    """Return what an Idempotency-Key stands for, beside the body."""
    return [
        asked.operation,
        asked.options,
        asked.source and str(asked.source),
        asked.destination,
        asked.webhook,
        asked.concurrency,
    ]


def _endings(job: str, asked: Asked) -> list[Ending]:
    """Return what is to be done when the job has ended."""
    targets = {DESTINATION: asked.destination, WEBHOOK: asked.webhook}
    return [
        Ending(job, kind, target, WAITING, 0, 0.0, None, None)
        for kind, target in targets.items()
        if target is not None
    ]
