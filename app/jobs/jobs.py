"""The jobs of a server: the calls of routes, and the start and end of the runner.

Import this file only where a data folder is set: it imports SQLAlchemy.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress

from app.admission.counters import ByKey, Counters
from app.jobs.acceptance import Acceptance, share_of
from app.jobs.endings import Endings, WebhookSender
from app.jobs.files import DataFolder
from app.jobs.results import OpenResults
from app.jobs.runner import ImageWorker, Runner, WorkOf
from app.jobs.store import (
    LARGEST_CHUNK,
    SMALLEST_CHUNK,
    UNFINISHED,
    Database,
    DatabaseFailed,
    Job,
    JobStore,
    State,
)
from app.storage.storage import Storage
from models.domain.errors import NotFound, ResultsExpired, TooManyFollowers
from models.settings import Settings

log = logging.getLogger("darkroom.jobs")

SWEEP = 10.0
"""Seconds between two removals of what has expired."""

SEARCH = 3600.0
"""Seconds between two searches for folders that are no job's, because a body broke off."""

MOST_FOLLOWERS = 16
"""Requests of one client, at all front ends, that follow results at a time."""


class Jobs:
    """The jobs of the data folder, as this process sees them. Every client has jobs of its own."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        folder: DataFolder,
        storage: Storage,
        worker: ImageWorker,
        work_of: WorkOf,
        most: int,
        counters: Counters,
        stopping: Callable[[], bool],
        on_item: Callable[[str], None],
    ) -> None:
        self.folder, self.storage, self.worker = folder, storage, worker
        self._settings, self._counters, self._stopping = settings, counters, stopping
        self.store = store = JobStore(database, settings.job_retention)
        self.leaving = False
        """Set when this process accepts no more connections: its followers go on elsewhere."""
        self._runner = Runner(store, folder, worker, work_of, most, stopping, on_item)
        chunk, wake = min(LARGEST_CHUNK, max(SMALLEST_CHUNK, most)), self._runner.wake
        self.acceptance = Acceptance(store, folder, storage, settings, chunk, self._all, wake)
        self.endings = Endings(store, self._all, storage, WebhookSender.from_settings(settings))
        self.on_states: Callable[[Mapping[str, int]], None] = lambda _states: None
        """Takes the number of jobs in each state, at each sweep."""
        self._tasks: list[asyncio.Task[None]] = []
        self._next_search = 0.0

    async def start(self) -> None:
        """Go on with the jobs of the data folder; raises DatabaseFailed."""
        await self.store.release_abandoned()
        work = (self._runner.run(), self._sweep(), self.endings.run())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def aclose(self) -> None:
        """Finish the chunks in work within the drain time, give the rest back, and end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await self._runner.idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.endings.sender.aclose()
        self.store.database.close()

    async def _sweep(self) -> None:
        """Sweep every SWEEP seconds until this is cancelled, as all processes do."""
        while True:
            try:
                await self.sweep()
            except (DatabaseFailed, OSError) as error:
                log.warning("the database of jobs does not answer: %s", error)
            except Exception as error:  # a fault of ours must not end all later sweeps
                log.error("a sweep of the jobs failed", exc_info=error)
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> None:
        """Free the chunks of processes that died, remove expired jobs, and sometimes folders that
        belong to no job.

        Raises DatabaseFailed and OSError.
        """
        store, most = self.store, self._settings.max_data_bytes
        self.on_states(await store.by_state())
        if await store.release_abandoned():
            self._runner.wake()
        stored = await store.stored()
        share = share_of(most) if sum(stored.values()) < most else 0
        self._runner.full_clients = [client for client, n in stored.items() if n >= share]
        while expired := await store.expire():
            await self._remove(expired)
        await store.forget()
        if time.monotonic() >= self._next_search:
            self._next_search = time.monotonic() + SEARCH
            idle = await asyncio.to_thread(self.folder.unchanged)
            await self._remove({*idle} - await store.known(idle))

    async def _remove(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            await asyncio.to_thread(self.folder.remove, id_)

    async def cancel(self, id_: str, client: str) -> Job:
        """Cancel a job unless it has finished; return it as it is then."""
        job = await self.store.of_client(id_, client)
        if job.state not in UNFINISHED:
            return job
        await self.store.cancel(id_)
        self._runner.wake()
        return await self.store.of_client(id_, client)

    async def delete(self, id_: str, client: str) -> State | None:
        """Cancel a job that is not finished, and return its state; remove a finished job: None."""
        job = await self.store.of_client(id_, client)
        if job.state in UNFINISHED:
            return (await self.cancel(id_, client)).state
        if await self.store.remove(id_):
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
        stopping = on_close = None
        if follow and job.state in UNFINISHED:
            stopping, on_close = self._leaves, self._follower(job.client)
        where = self.store, self.folder, offset, end
        found = OpenResults(job, *where, stopping, on_close, whole=whole)
        try:
            if job.state is State.EXPIRED or not await found.open():
                now = await self.store.of_client(job.id, job.client)
                if now.state is State.EXPIRED:
                    text = "the results were kept for their time (DARKROOM_JOB_RETENTION)"
                    raise ResultsExpired(text)
                raise NotFound("results of the job are not in the data folder any more")
        except BaseException:
            await found.aclose()
            raise
        return found

    def _leaves(self) -> bool:
        return self.leaving or self._stopping()

    def _follower(self, client: str) -> Callable[[], None]:
        """Count a follower of a client; return a function that ends the count. Raises
        TooManyFollowers.
        """
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
