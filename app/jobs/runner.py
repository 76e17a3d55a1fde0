"""Work through the jobs of the database, chunk by chunk, beside the other processes that do so."""

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from app.jobs.committer import ChunkRecords, Committer
from app.jobs.faults import Faults
from app.jobs.files import MANIFEST, DataFolder, private
from app.jobs.inputs import Inputs
from app.jobs.manifest import StoredLine, read
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.store.values import RUNNABLE, Claim, Job, State
from app.jobs.work import ImageWorker, Work, WorkOf, refused

# Claim chunks before they are needed, so that no image waits for the transaction of a claim.
MOST = 8
"""Chunks that one transaction claims at most: other processes must find work at the end of a
job."""

SHORT = 0.5
"""Seconds: chunks that were all begun within this time are followed by twice as many."""


class ClaimsAhead:
    """The chunks of one job that this process has claimed and not begun.

    `claim` takes at most the given number of chunks; an empty list means that none is free. While
    the last claimed chunk is begun, the next ones are being claimed. The faster chunks are begun,
    the more are claimed at a time: cheap images would else take more time to claim than to compute.
    """

    def __init__(
        self,
        claim: Callable[[int], Awaitable[list[Claim]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claim = claim
        self._clock = clock
        self._ready = deque[Claim]()
        self._coming: asyncio.Task[list[Claim]] | None = None
        self._number = 1
        self._taken_at: float | None = None

    async def next(self) -> Claim | None:
        """Return the next chunk, or None if none is free."""
        if not self._ready:
            self._coming = self._coming or self._claimed()
            found = await asyncio.shield(self._coming)
            self._coming = None
            self._ready.extend(found)
            if not found:
                return None
        first = self._ready.popleft()
        if not self._ready:
            self._coming = self._claimed()
        return first

    async def close(self, give_back: Callable[[Sequence[Claim]], None]) -> None:
        """Call `give_back` with the chunks that were not begun, and wait for a claim under way.

        Its chunks are given back even if this is cancelled before it has ended.
        """
        give_back([*self._ready])
        self._ready.clear()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.add_done_callback(lambda ended: give_back(_chunks_of(ended)))
            await asyncio.wait([coming])

    def _claimed(self) -> "asyncio.Task[list[Claim]]":
        """Begin to claim the next chunks."""
        now = self._clock()
        if self._taken_at is not None:
            quick = now - self._taken_at < SHORT
            self._number = min(2 * self._number, MOST) if quick else max(1, self._number // 2)
        self._taken_at = now

        async def claim() -> list[Claim]:
            return await self._claim(self._number)

        return asyncio.create_task(claim())


def _chunks_of(ended: "asyncio.Task[list[Claim]]") -> list[Claim]:
    """Return the chunks that were claimed; none if claiming failed."""
    return [] if ended.cancelled() or ended.exception() is not None else ended.result()


# Choose the jobs that a process works on, so that no client occupies all places.
JOBS_AT_ONCE = 8
"""Jobs that one process works on at a time; they share its slots for images (SharedSlots)."""

TURN = 30.0
"""Seconds for which a job is worked on before it gives way to a job of another client that has as
many before it."""

LOOK_AROUND = 5.0
"""Seconds between two looks for waiting jobs while JOBS_AT_ONCE are in work."""


class Turns:
    """The jobs in work; `clock` returns seconds.

    The first job of each client comes before the second job of any client. Clients with equally
    many jobs in work take turns. Jobs of one client are worked on in the order of their arrival.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._look_at = 0.0
        self.over: set[str] = set()
        """Jobs in work of which no further chunk is begun, because others have waited."""

    def is_due(self) -> bool:
        """Return whether it is time to look for jobs that wait."""
        return len(self._begun) - len(self.over) < JOBS_AT_ONCE or self._clock() >= self._look_at

    def choose(
        self, runnable: Sequence[Job], rests: Callable[[str], bool] = lambda _id: False
    ) -> list[Job]:
        """Return the jobs whose turn begins, and set `over`.

        `runnable` are jobs with chunks that wait: the first of each client, then the second ones.
        A job that `rests` keeps its place behind those that have not had their turn.
        """
        now = self._clock()
        self._look_at = now + LOOK_AROUND
        known = {job.id for job in runnable}
        self._ended = {id_: at for id_, at in self._ended.items() if id_ in known}
        runnable = [job for job in runnable if not rests(job.id)]
        ranks, of_client = dict[str, int](), Counter[str]()
        for job in runnable:
            ranks[job.id] = of_client[job.client]
            of_client[job.client] += 1
        idle = [job for job in runnable if job.id not in self._begun]
        idle.sort(key=lambda job: (ranks[job.id], self._ended.get(job.id, 0.0)))
        working = self._begun.keys() - self.over
        room = JOBS_AT_ONCE - len(working)
        chosen = idle[:room]
        lasting = [id_ for id_ in working if id_ in ranks]  # the others end by themselves
        lasting.sort(key=lambda id_: (-ranks[id_], self._begun[id_]))
        for job, id_ in zip(idle[room:], lasting, strict=False):
            ahead = ranks[id_] - ranks[job.id]
            if ahead < 0 or (ahead == 0 and now - self._begun[id_] < TURN):
                break
            self.over.add(id_)
            chosen.append(job)
        return chosen

    def begin(self, id_: str) -> None:
        """Note that a job is in work."""
        self._begun[id_] = self._clock()

    def end(self, id_: str) -> None:
        """Note that a job is not in work any more; if it has chunks left, others come before it.

        That also holds for one that rests after a fault, which would else return to its place.
        """
        del self._begun[id_]
        self.over.discard(id_)
        self._ended[id_] = self._clock()


# Find the item of a chunk whose work ends the process each time, so that its job can end. The
# items of a chunk that was begun several times are done one at a time. A file beside the manifest
# says which one was under way: each item adds a line when it is begun, and one when it has ended
# in any way but with its process.
CAREFUL = 3
"""The attempt of a chunk from which on its items are done one at a time."""

DEATHS = 2
"""Processes that ended with an item alone under way, after which it is not tried again: the first
may have been killed for another reason."""

_BEGUN, _ENDED = "+", "-"


class Suspects:
    """The items of one chunk that were under way when a process ended; the file is at `path`.

    `read` and writing block; the chunk has one owner, so no other process writes meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._deaths = Counter[int]()

    def read(self) -> None:
        """Count the items that were begun and did not end."""
        if not self._path.exists():
            return
        for text in self._path.read_text("ascii").splitlines():
            sign, number = text[:1], text[1:]
            if number.isdecimal() and sign in (_BEGUN, _ENDED):
                self._deaths[int(number)] += 1 if sign == _BEGUN else -1

    def blames(self, index: int) -> bool:
        """Return whether an item has ended as many processes as it may."""
        return self._deaths[index] >= DEATHS

    @asynccontextmanager
    async def under_way(self, index: int) -> AsyncIterator[None]:
        """Note that an item is under way during the block; raises OSError."""
        try:
            # A thread that has begun writes its line also after a cancellation, perhaps last.
            await asyncio.to_thread(self._add, f"{_BEGUN}{index}\n")
            yield
        finally:
            # It does not wait: a task that is cancelled must write it all the same.
            self._add(f"{_ENDED}{index}\n")

    def _add(self, text: str) -> None:
        """Append a line that outlives this process and its host."""
        descriptor = private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# The slots for images in work, shared fairly by clients, and by the jobs of each client.
class SharedSlots:
    """At most `most` images in work. A slot that is free goes to the client that has the fewest,
    and of its jobs to the one that has the fewest.

    So a job whose origin is slow keeps its share and no more. If jobs took slots by turns, it would
    soon hold all of them, because it returns its slots late.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._clients, self._jobs = Counter[str](), Counter[str]()
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[None]]] = {}

    async def take(self, client: str, job: str) -> None:
        """Wait for a slot for an image of a job of a client."""
        if self._free:  # then none waits
            self._count(client, job, 1)
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((client, job), deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it was given meanwhile
                self.give(client, job)
            raise

    def give(self, client: str, job: str) -> None:
        """Give a slot back."""
        self._count(client, job, -1)
        while self._free and self._waiting:
            key = min(self._waiting, key=self._held)
            line = self._waiting[key]
            given = line.popleft()
            if not line:
                del self._waiting[key]
            if not given.done():  # else its task was cancelled
                self._count(*key, 1)
                given.set_result(None)

    def _held(self, key: tuple[str, str]) -> tuple[int, int]:
        client, job = key
        return self._clients[client], self._jobs[job]

    def _count(self, client: str, job: str, change: int) -> None:
        self._free -= change
        for counter, name in ((self._clients, client), (self._jobs, job)):
            counter[name] += change
            if not counter[name]:
                del counter[name]


class JobSlots:
    """The images of one job that are in work at a time: at most `concurrency` of the job, and its
    part of `shared`, which has the images of all jobs.
    """

    def __init__(self, shared: SharedSlots, job: Job) -> None:
        self._shared = shared
        self._key = job.client, job.id
        self._own = None if job.concurrency is None else asyncio.Semaphore(job.concurrency)

    async def take(self) -> None:
        """Wait for a slot; the job's own limit first, so that it keeps none from other jobs."""
        if self._own is None:
            await self._shared.take(*self._key)
            return
        await self._own.acquire()
        try:
            await self._shared.take(*self._key)
        except BaseException:
            self._own.release()
            raise

    def give(self, *_: object) -> None:
        """Give a slot back."""
        self._shared.give(*self._key)
        if self._own is not None:
            self._own.release()

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give()


@dataclass(frozen=True, slots=True)
class JobInWork:
    """A job, the work on each of its images, its inputs and its slots."""

    job: Job
    work: Work
    inputs: Inputs
    slots: JobSlots


log = logging.getLogger("darkroom.jobs")

LOOK = 1.0
"""Seconds between two looks for new jobs, for cancelled ones and at the lease of this process."""

KNOWN = 256
"""Jobs with work that one look finds at most."""


class Runner:
    """The work of one process on all jobs; at most `most` images are under way."""

    def __init__(
        self,
        jobs: JobRows,
        chunks: ChunkRows,
        owner: Owner,
        folder: DataFolder,
        worker: ImageWorker,
        inputs: Callable[[Path], Inputs],
        work_of: WorkOf,
        most: int,
        retention: float,
        stopping: Callable[[], bool],
        on_item: Callable[[str], None],
    ) -> None:
        self._jobs = jobs
        self._chunks = chunks
        self._owner = owner
        self._folder = folder
        self._worker = worker
        self._inputs = inputs
        self._work_of = work_of
        self._slots = SharedSlots(most)
        self._turns = Turns()
        self._faults = Faults(jobs, retention)
        self._alone = asyncio.Lock()
        self._retention = retention
        self._stopping = stopping
        self._on_item = on_item
        self._committer = Committer(folder, chunks, owner.id, retention)
        self._feeders: dict[str, asyncio.Task[None]] = {}
        self._unreleased: list[Claim] = []
        self._doubtful: set[str] = set()
        """Jobs of which a claim failed: the database may have made it all the same."""
        self._awake = asyncio.Event()
        self.full = False
        """Set while the data folder has no room: no chunk is begun."""
        self.full_clients: frozenset[str] = frozenset()
        """Clients whose share of the data folder is full: no chunk of theirs is begun."""

    def wake(self) -> None:
        """Look for new and cancelled jobs now."""
        self._awake.set()

    async def run(self) -> None:
        """Work until this is cancelled."""
        committing = asyncio.create_task(self._committer.run())
        try:
            while True:
                try:
                    await self._look()
                except (SQLAlchemyError, OSError) as error:
                    log.warning("the database of jobs does not answer: %s", error)
                except Exception as error:  # a fault of ours must not end the work on all jobs
                    log.error("a look at the jobs failed", exc_info=error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._awake.wait()
                self._awake.clear()
        finally:
            for task in (committing, *self._feeders.values()):
                task.cancel()
            await asyncio.gather(committing, *self._feeders.values(), return_exceptions=True)

    async def idle(self) -> None:
        """Return when no chunk is in work; call it once nothing is claimed any more."""
        while self._feeders:
            await asyncio.wait(self._feeders.values())

    async def release(self) -> None:
        """Give back all chunks that were not finished."""
        claims = [*self._unreleased]
        self._unreleased.clear()
        try:
            await self._chunks.release(claims, self._owner.id)
        except BaseException:
            self._unreleased += claims
            raise

    async def _look(self) -> None:
        """Renew the lease, drop cancelled jobs, and begin with jobs that have free chunks."""
        await self._owner.renew()
        states = await self._jobs.states([*self._feeders])
        if self._unreleased or State.CANCELLING in states.values():
            await self.release()
            await self._jobs.end_cancelled(self._retention)
        for id_ in self._doubtful - self._feeders.keys():
            await self._chunks.release_all(id_, self._owner.id)
            self._doubtful.discard(id_)
        for id_, task in self._feeders.items():
            if states.get(id_) not in RUNNABLE:
                task.cancel()
        if not (self._stopping() or self.full) and self._turns.is_due():
            known = await self._jobs.runnable(KNOWN, self._owner.id, self.full_clients)
            for job in self._turns.choose(known, self._faults.resting):
                self._begin(job)

    def _begin(self, job: Job) -> None:
        task = self._feeders[job.id] = asyncio.create_task(self._feed(job))
        self._turns.begin(job.id)

        def ended(_: object) -> None:
            del self._feeders[job.id]
            self._turns.end(job.id)
            self.wake()

        task.add_done_callback(ended)

    async def _feed(self, job: Job) -> None:
        """Work on chunks of one job until none is free; after a fault it fails or rests."""
        try:
            await asyncio.to_thread(self._folder.check, job.id)
            await self._worker.check(job)
            await self._work(job, self._work_of(job.operation, job.options))
        except Exception as error:  # other jobs are protected from a fault of ours
            if not self._stopping():
                await self._faults.take(job, error)
        else:
            self._faults.ended(job.id)

    async def _work(self, job: Job, work: Work) -> None:
        inputs = self._inputs(self._folder.of(job.id))
        this = JobInWork(job, work, inputs, JobSlots(self._slots, job))
        claims = ClaimsAhead(partial(self._claim, job.id))
        try:
            async with inputs, asyncio.TaskGroup() as group:
                while self._goes_on(job):
                    claim = await claims.next()
                    if claim is None:
                        break
                    begun = asyncio.Event()
                    task = group.create_task(self._chunk(this, claim, begun))
                    task.add_done_callback(partial(self._ended, claim))
                    await begun.wait()
        finally:
            await claims.close(self._unreleased.extend)

    def _goes_on(self, job: Job) -> bool:
        """Return whether further chunks of a job may be begun."""
        full = self.full or job.client in self.full_clients
        return not (full or self._stopping() or job.id in self._turns.over)

    async def _claim(self, job: str, limit: int) -> list[Claim]:
        try:
            return await self._chunks.claim(job, self._owner.id, limit)
        except BaseException:
            self._doubtful.add(job)
            raise

    def _ended(self, claim: Claim, task: "asyncio.Task[None]") -> None:
        """Give a chunk back that was not committed; one that is committed all the same stays so.

        As a callback: a task that is cancelled before its first step runs no `finally`.
        """
        if task.cancelled() or task.exception() is not None:
            self._unreleased.append(claim)

    async def _chunk(self, this: JobInWork, claim: Claim, begun: asyncio.Event) -> None:
        """Work on the items of a chunk; `begun` is set when the last one is under way."""
        try:
            with ChunkRecords(claim, self._folder.of(this.job.id)) as records:
                await self._items(this, records, begun)
                await self._worker.settle(this.job)
                await self._committer.commit(records)
        finally:
            begun.set()

    async def _items(self, this: JobInWork, records: ChunkRecords, begun: asyncio.Event) -> None:
        span = records.claim.span
        found = await asyncio.to_thread(read, self._folder.of(this.job.id) / MANIFEST, span)
        if records.claim.attempts >= CAREFUL:
            await self._one_by_one(this, records, found)
            return
        async with asyncio.TaskGroup() as group:
            for index, line in enumerate(found, span.first):
                await this.slots.take()
                task = group.create_task(self._item(this, index, line, records))
                task.add_done_callback(this.slots.give)
            begun.set()

    async def _one_by_one(
        self, this: JobInWork, records: ChunkRecords, lines: Sequence[StoredLine]
    ) -> None:
        """Work on a chunk that ended processes; an item that ends them alone becomes an error."""
        claim = records.claim
        log.warning("job %s: attempt %s of chunk %s", claim.job, claim.attempts, claim.number)
        suspects = Suspects(self._folder.of(claim.job) / f"suspects-{claim.number}")
        await asyncio.to_thread(suspects.read)
        for index, line in enumerate(lines, claim.span.first):
            if suspects.blames(index):
                await records.add(refused(index, line), failed=True)
                self._on_item("failed")
                continue
            # One in this process, or a killer would make a suspect of an item of another chunk.
            async with self._alone, this.slots, suspects.under_way(index):
                await self._item(this, index, line, records)

    async def _item(
        self, this: JobInWork, index: int, line: StoredLine, records: ChunkRecords
    ) -> None:
        made, failed = await self._worker.record(this.job, this.work, index, line, this.inputs)
        await records.add(made, failed=failed)
        self._on_item("failed" if failed else "ok")
