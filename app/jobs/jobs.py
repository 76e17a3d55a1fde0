"""The jobs of one server: what routes ask for, and the start and end of the runner.

Import this file only where a data folder is set: it imports SQLAlchemy.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.admission.counters import ByKey, Counters
from app.jobs.acceptance import Acceptance, share_of
from app.jobs.endings import Endings
from app.jobs.files import DataFolder
from app.jobs.results import Following, OpenResults
from app.jobs.runner import Runner
from app.jobs.sources import JobRequest, ManifestSources
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import Owner
from app.jobs.store.endings import EndingRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import LARGEST_CHUNK, SMALLEST_CHUNK, UNFINISHED, Job, State
from app.jobs.work import ImageOutput, ImageWorker, Inputs, WorkOf
from app.storage.storage import Storage
from app.webhooks import WebhookSender
from models.domain.errors import NotFound, ResultsExpired, TooManyFollowers
from models.settings import Settings

log = logging.getLogger("darkroom.jobs")

SWEEP = 10.0
"""Seconds between two removals of what has expired."""

SEARCH = 300.0
"""Seconds between two searches for folders without a job, which look at every file of all jobs."""

MOST_FOLLOWERS = 16
"""Requests of one client, at all front ends, that follow results at a time."""


class Jobs:
    """The jobs of the data folder, as one process sees them. Every client has jobs of its own."""

    def __init__(
        self,
        settings: Settings,
        engine: AsyncEngine,
        folder: DataFolder,
        storage: Storage,
        worker: ImageWorker,
        work_of: WorkOf,
        most: int,
        counters: Counters,
        stopping: Callable[[], bool],
        on_item: Callable[[str], None],
    ) -> None:
        self.folder, self.storage = folder, storage
        self._settings, self._engine, self._counters = settings, engine, counters
        self.rows, self._chunks, self._owner = JobRows(engine), ChunkRows(engine), Owner(engine)
        self.leaving = False
        """Set when this process accepts no more connections: its followers go on elsewhere."""
        self._following = Following(self.rows, self._chunks, lambda: self.leaving or stopping())
        inputs = partial(Inputs, settings=settings, large=asyncio.Semaphore(1))
        parts = self.rows, self._chunks, self._owner, folder, worker, inputs, work_of
        self._runner = Runner(*parts, most, settings.job_retention, stopping, on_item)
        chunk = min(LARGEST_CHUNK, max(SMALLEST_CHUNK, most))
        sources = ManifestSources(storage, folder, self.rows, settings, chunk, self._all)
        wake = self._runner.wake
        self.acceptance = Acceptance(folder, self.rows, settings, chunk, wake, sources)
        endings, sender = EndingRows(engine, self._owner.id), WebhookSender.from_settings(settings)
        self.endings = Endings(endings, self.rows, self._all, storage, sender)
        self._search_at = 0.0
        self.on_states: Callable[[Mapping[str, int]], None] = lambda _states: None
        """Takes the number of jobs in each state, at each sweep."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Go on with the jobs of the data folder; raises SQLAlchemyError."""
        await self._owner.enter()
        await self._chunks.release_abandoned()
        work = (self._runner.run(), self._sweep(), self.endings.run())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def aclose(self) -> None:
        """Finish the chunks in work within the drain time, give back the others, and end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await self._runner.idle()
        await self._following.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(SQLAlchemyError, OSError):  # then the lease ends by time
            await self._runner.release()
            await self._owner.leave()
        await self.endings.sender.aclose()
        await self._engine.dispose()

    async def _sweep(self) -> None:
        """Sweep every SWEEP seconds until this is cancelled, beside the other processes."""
        while True:
            try:
                await self.sweep()
            except (SQLAlchemyError, OSError) as error:
                log.warning("the database of jobs does not answer: %s", error)
            except Exception as error:  # a fault of ours must not end all later sweeps
                log.error("a sweep of the jobs failed", exc_info=error)
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> None:
        """Free what processes that died have claimed, and remove what has expired.

        Raises SQLAlchemyError and OSError.
        """
        rows, runner, settings = self.rows, self._runner, self._settings
        self.on_states(await rows.by_state())
        if await self._chunks.release_abandoned():
            runner.wake()
        await rows.end_cancelled(settings.job_retention)
        stored, share = await rows.stored(), share_of(settings.max_data_bytes)
        runner.full_clients = [client for client, n in stored.items() if n >= share]
        runner.full = sum(stored.values()) >= settings.max_data_bytes
        while expired := await rows.expire():
            await self._remove(expired)
        await rows.forget(time.time() - 2 * settings.job_retention)
        await self.endings.rows.forget()
        if time.monotonic() >= self._search_at:
            self._search_at = time.monotonic() + SEARCH
            idle = await asyncio.to_thread(self.folder.unchanged)
            await self._remove({*idle} - await rows.known(idle))

    async def _remove(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            await asyncio.to_thread(self.folder.remove, id_)

    async def check(self, asked: JobRequest) -> None:
        """Refuse a job whose results could not be written; raises ServiceError."""
        if asked.destination is not None:
            await ImageOutput(self.storage).check(asked.destination)

    async def find(self, id_: str, client: str) -> Job:
        """Return a job of a client; raises NotFound."""
        job = await self.rows.find(id_, client)
        if job is None:
            raise NotFound(f"there is no job {id_[:64]!r} here; GET /jobs lists yours")
        return job

    async def listed(
        self, client: str, state: str | None, before: str | None, limit: int
    ) -> list[Job]:
        """Return jobs of a client, the newest first, from the one after `before` on."""
        return await self.rows.listed(client, State(state) if state else None, before, limit)

    async def rate(self, job: Job) -> float | None:
        """Return the images a second of a running job, None while that is unknown."""
        return await self._chunks.rate(job.id) if job.state is State.RUNNING else None

    async def cancel(self, id_: str, client: str) -> Job:
        """Cancel a job unless it has finished; return it as it is then."""
        job = await self.find(id_, client)
        if job.state not in UNFINISHED:
            return job
        await self.rows.cancel(id_, self._settings.job_retention)
        self._runner.wake()
        return await self.find(id_, client)

    async def delete(self, id_: str, client: str) -> State | None:
        """Cancel a job that is not finished, and return its state; remove one that is: None."""
        job = await self.find(id_, client)
        if job.state in UNFINISHED:
            return (await self.cancel(id_, client)).state
        if await self.rows.remove(id_):
            await asyncio.to_thread(self.folder.remove, id_)
        return None

    async def results(
        self,
        job: Job,
        offset: int = 0,
        limit: int | None = None,
        *,
        follow: bool = False,
        whole: bool = False,
    ) -> OpenResults:
        """Open the records of a job from number `offset` on, in the order of commit.

        With `follow` the records of a job that still runs are waited for. When the server stops,
        they end early, or break off where a reader needs the `whole`. Raises ResultsExpired,
        NotFound and TooManyFollowers.
        """
        offset = min(offset, job.total)  # databases take numbers of 64 bits
        end = None if limit is None else offset + limit
        following: Following | None = None
        on_close: Callable[[], None] = _nothing
        if follow and job.state in UNFINISHED:
            following, on_close = self._following, self._follower(job.client)
        found = OpenResults(
            job, self.folder, offset, end, following, whole=whole, on_close=on_close
        )
        try:
            complete = job.state is not State.EXPIRED and await found.open(self._chunks)
            if not complete:
                now = await self.find(job.id, job.client)
                raise _expired() if now.state is State.EXPIRED else _missing()
        except BaseException:
            await found.aclose()
            raise
        return found

    def _follower(self, client: str) -> Callable[[], None]:
        """Count a follower of a client; return what ends that. Raises TooManyFollowers."""
        key = self._counters.key(f"client {client}")
        if not self._counters.take_for(key, ByKey.FOLLOWERS, 1, MOST_FOLLOWERS):
            raise TooManyFollowers(
                f"{MOST_FOLLOWERS} requests of yours follow results of jobs; end one of them, or "
                "read without `follow`",
                retry_after=5.0,
            )
        return lambda: self._counters.add_for(key, ByKey.FOLLOWERS, -1)

    async def _all(self, job: Job) -> AsyncGenerator[bytes, None]:
        async with aclosing(await self.results(job)) as found, aclosing(found.read()) as records:
            async for piece in records:
                yield piece


def _expired() -> ResultsExpired:
    return ResultsExpired("the results were kept for their time (DARKROOM_JOB_RETENTION)")


def _missing() -> NotFound:
    return NotFound("results of the job are not in the data folder any more")


def _nothing() -> None:
    """Do nothing at the end of reading."""
