"""Make a job of a request: receive its body, and queue it once it is on disk."""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from app.jobs.files import DataFolder
from app.jobs.receiving import Received, Receiver, Room, check_media_type, too_large
from app.jobs.sources import JobRequest, ManifestSources
from app.jobs.store.endings import DESTINATION, WAITING, WEBHOOK, Ending
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, JobUsage, State
from models.domain.errors import IdempotencyMismatch, ServiceError, StorageFull, TooManyJobs
from models.settings import Settings


def share_of(most: int) -> int:
    """Return the bytes that one client may store, of `most` bytes of the data folder."""
    return most * 3 // 4


# The ids of jobs, which are ordered by the time at which they were made.
def new_id() -> str:
    """Return the id of a new job: milliseconds since 1970, then random digits, 32 in all."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


ARRIVING = 4
"""Bodies that one client may send to one process at a time. The server's own rules for slow bodies
hold for those of jobs too."""


class Acceptance:
    """Accepts jobs for one process, in chunks of `chunk` items; calls `on_queued` after each."""

    def __init__(
        self,
        folder: DataFolder,
        rows: JobRows,
        settings: Settings,
        chunk: int,
        on_queued: Callable[[], None],
        sources: ManifestSources,
    ) -> None:
        self._sources = sources
        self._folder = folder
        self._rows = rows
        self._settings = settings
        self._chunk = chunk
        self._on_queued = on_queued
        self._arriving = Counter[str]()

    async def accept(self, asked: JobRequest, request: Request, kind: str, n_bytes: int) -> Job:
        """Return the queued job of a body of media type `kind`, which announces `n_bytes` or 0.

        With a key that the client used before it is the job of that time. Raises ServiceError.
        """
        check_media_type(kind, needed=asked.source is None)
        if n_bytes > self._settings.max_job_bytes:
            raise too_large(self._settings.max_job_bytes)
        arriving = self._arriving[asked.client]
        if arriving >= ARRIVING:
            raise TooManyJobs(
                f"{arriving} bodies of your jobs are arriving; send the next when one has arrived",
                retry_after=5.0,
            )
        self._arriving[asked.client] += 1
        try:
            usage = await self._rows.usage(asked.client, asked.key)
            if not usage.repeated:
                self._check(usage, arriving + 1)
            room = self._room(usage)
            room.check(n_bytes)
            return await self._received(new_id(), asked, request, kind, room)
        finally:
            self._arriving[asked.client] -= 1
            self._arriving += Counter()  # drops clients without a body

    def _check(self, usage: JobUsage, new: int) -> None:
        """Raise TooManyJobs if a client cannot have `new` further jobs."""
        most = self._settings.max_jobs_per_client
        if usage.unfinished + new > most:
            raise TooManyJobs(
                f"{usage.unfinished} of your jobs are not finished; {most} may be "
                "(DARKROOM_MAX_JOBS_PER_CLIENT); wait for one, or cancel one",
                retry_after=30.0,
            )

    def _room(self, usage: JobUsage) -> Room:
        """Return the room that is left to a client."""
        most = self._settings.max_data_bytes
        share = share_of(most)
        of_all, of_client = most - usage.of_all, share - usage.of_client
        what, limit, setting = "jobs", most, "DARKROOM_MAX_DATA_BYTES"
        if of_client < of_all:
            what, limit, setting = "your jobs", share, f"three quarters of {setting}"
        full = StorageFull(
            f"{what} may store {limit} bytes ({setting}), and this body does not fit; delete "
            "finished jobs, or wait until some expire"
        )
        return Room(min(of_all, of_client), full)

    def _check_added(self, usage: JobUsage) -> None:
        """Raise the error of a job with which its client, or all, have more than they may."""
        self._check(usage, 0)
        self._room(usage).check(0)

    async def _received(
        self, id_: str, asked: JobRequest, request: Request, kind: str, room: Room
    ) -> Job:
        found: Received | None = None
        digested = json.dumps([kind, *_equal(asked)], sort_keys=True).encode()
        try:
            folder = await asyncio.to_thread(self._folder.add, id_)
            if asked.source is None:
                receiver = Receiver(
                    folder, self._settings, digested, self._chunk, room, asked.client
                )
                made = await receiver.receive(request, kind)
            else:
                made = await self._sources.manifest(asked, asked.source, folder, digested, room)
            await asyncio.to_thread(self._folder.sync, id_)
            found = made
        except OSError as error:
            raise StorageFull(f"the data folder takes no more: {error.strerror}") from None
        finally:
            if found is None:
                await asyncio.to_thread(self._folder.remove, id_)
        # Shielded: it would not be known whether a commit that is cancelled was made.
        queued = await asyncio.shield(self._queued(asked, _new_job(id_, asked, found), found))
        if queued.digest != found.digest:
            raise IdempotencyMismatch(
                "this Idempotency-Key was used for another body, operation or options; take a new "
                "key for new work"
            )
        return queued

    async def _queued(self, asked: JobRequest, new: Job, found: Received) -> Job:
        """Return the new job once it is in the database, or the one that has its key already.

        The files of a new job stay unless the database has none: a commit whose answer was lost may
        have been made. If the database does not answer at all, the next sweeps decide.
        """
        try:
            endings = _endings(new.id, asked)
            queued = await self._rows.add(new, found.spans, endings, self._check_added)
        except ServiceError:
            await asyncio.to_thread(self._folder.remove, new.id)
            raise
        except (SQLAlchemyError, OSError):
            made = await self._rows.find(new.id)
            if made is None:
                await asyncio.to_thread(self._folder.remove, new.id)
                raise
            queued = made
        if queued.id != new.id:
            await asyncio.to_thread(self._folder.remove, new.id)
        self._on_queued()
        return queued


def _new_job(id_: str, asked: JobRequest, found: Received) -> Job:
    """Return the job that is made of a body."""
    return Job(
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


def _equal(asked: JobRequest) -> list[object]:
    """Return what an Idempotency-Key stands for, beside the body."""
    return [
        asked.operation,
        asked.options,
        asked.source and str(asked.source),
        asked.destination,
        asked.webhook,
        asked.concurrency,
    ]


def _endings(job: str, asked: JobRequest) -> list[Ending]:
    """Return what is to be done when the job has ended."""
    targets = {DESTINATION: asked.destination, WEBHOOK: asked.webhook}
    return [
        Ending(job, kind, target, WAITING, 0, 0.0, None, None)
        for kind, target in targets.items()
        if target is not None
    ]
