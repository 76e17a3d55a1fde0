"""Work through the jobs of the database, chunk by chunk, beside the other processes that do so."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from app.jobs.chunk_records import ChunkRecords
from app.jobs.files import MANIFEST, DataFolder
from app.jobs.inputs import Inputs
from app.jobs.manifest import StoredLine, read
from app.jobs.running.claims_ahead import ClaimsAhead
from app.jobs.running.committer import Committer
from app.jobs.running.faults import Faults
from app.jobs.running.job_in_work import JobInWork, JobSlots
from app.jobs.running.slots import SharedSlots
from app.jobs.running.suspects import CAREFUL, Suspects
from app.jobs.running.turns import Turns
from app.jobs.running.work import ImageWorker, Work, WorkOf, refused
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.store.values import RUNNABLE, Claim, Job, State

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
