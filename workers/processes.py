"""The backend whose workers are other processes of this host.

A job goes to the worker with the fewest jobs of ours. What a lost worker had not answered goes to
another one or to its successor, while its deadline allows: the work is pure, so a second run is
safe. A job that was with `MAX_LOSSES` workers when they died is suspected, and goes to no other.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from models.backend import Load
from models.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    ServiceError,
    WorkerLost,
)
from models.job import Completed, Failed, Job, Labels, Lane, Operation, Outcome, Result
from workers import translation
from workers.arena import Arena, Slot
from workers.link import Link, Pending
from workers.operations import FilterChain
from workers.slots import Slots
from workers.wire import Batched, Done, Submit, Welcome

log = logging.getLogger("darkroom.processes")

MAX_LOSSES = 2
MAX_CHANNELS = 4
"""A filter's answer is written over its image, and may be larger and have more channels."""


class ProcessBackend:
    """The seam onto worker processes at Unix socket `addresses`; belongs to one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        arena_bytes: int,
        drain_timeout: float | None = None,
        on_batch: Callable[[Batched], None] = lambda batched: None,
        on_other: Callable[[], object] = lambda: None,
        say: Callable[[Operation], object] = translation.operation_said,
    ) -> None:
        self._arena = Arena.create(arena_bytes)
        self._slots = Slots(self._arena)
        self._parked: list[Pending] = []
        self._drain_timeout = drain_timeout
        self._on_other = on_other
        self._say = say
        self._closing = False
        self._held = 0
        self._idle = asyncio.Event()
        self._welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._current: Welcome | None = None
        self.submitted = 0
        self._links = [
            Link(a, self._arena, self._done, self._on_welcome, self._on_lost, on_batch)
            for a in addresses
        ]

    async def welcome(self) -> Welcome:
        """The first welcome of a worker, waiting for it."""
        return await asyncio.shield(self._welcomed)

    @property
    def current(self) -> Welcome:
        """The last welcome of a worker; there is one."""
        return self._current or self._welcomed.result()

    async def run(self, job: Job) -> Completed:
        """The answer of one job. The deadline is enforced here, so a hung worker answers 504."""
        if self._closing:
            raise Draining("this server is stopping; ask another one")
        self._held += 1
        try:
            slot = await self._slots.take(_room_for(job), job.deadline)
            outcome = await self._answer(job, slot)
        finally:
            self._held -= 1
            if not self._held:
                self._idle.set()
        if isinstance(outcome, Failed):
            try:
                raise outcome.error
            finally:  # the error's traceback holds this frame, which must not hold the image
                del outcome, job
        return outcome

    def load(self) -> Load:
        """How busy the workers are, by their last reports."""
        reports = [link.load for link in self._links]
        waiting = len(self._parked) + self._slots.waiting
        return Load(
            device=", ".join(link.welcome.device for link in self._links if link.welcome) or "none",
            queued_jobs=sum(r.queued_jobs for r in reports) + waiting,
            queued_pixels=sum(r.queued_pixels for r in reports),
            running_jobs=sum(r.running_jobs for r in reports),
            service_rate=sum(r.service_rate for r in reports),
            alive=not self._closing and any(link.up for link in self._links),
            takes_jpegs=any(link.up and link.takes_jpegs for link in self._links),
            decoding=min((link.load.decoding for link in self._links if link.up), default=0.0),
        )

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then hang up."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                if self._held:
                    await self._idle.wait()
        lost = WorkerLost("the server stopped before the image was done; try again")
        for pending in [*self._parked, *(p for link in self._links for p in link.pending.values())]:
            _resolve(pending, Failed(lost))
        self._slots.refuse(lost)
        for link in self._links:
            await link.close()
        self._arena.close()

    async def _answer(self, job: Job, slot: Slot) -> Outcome:
        loop = asyncio.get_running_loop()
        self.submitted += 1
        pending = Pending(self.submitted, job, slot, loop.create_future())
        alarm = job.deadline.alarm
        late = Failed(DeadlineExceeded("the request's deadline passed"))
        timer = None if alarm is None else loop.call_at(alarm, _resolve, pending, late)
        try:
            await self._slots.copied(pending, self._slots.write, pending)
            self._send(pending)
            done = await pending.waiter
            if isinstance(done, Failed):
                return done
            return await self._slots.copied(pending, self._outcome, pending, done)
        finally:
            if timer is not None:
                timer.cancel()
            self._abandon(pending)

    def _send(self, pending: Pending) -> None:
        """To the least loaded worker; parked while there is none."""
        up = [link for link in self._links if link.up]
        if not up:
            self._parked.append(pending)
            return
        job, slot = pending.job, pending.slot
        assert slot is not None
        shape, jpeg = translation.source_said(job.image)
        frame = Submit(
            pending.number,
            slot.offset,
            slot.size,
            shape,
            self._say(job.operation),
            job.deadline.at,
            job.lane is Lane.BULK,
            jpeg,
        )
        min(up, key=lambda link: len(link.pending)).submit(pending, frame)

    def _send_again(self, pending: Pending) -> None:
        """After a loss, from the start: a filter may have been writing over its image."""
        pending.link = None
        try:
            if pending.losses >= MAX_LOSSES or self._closing:
                text = f"{pending.losses} workers died while they held the image; it was given up"
                raise WorkerLost(text)
            self._slots.write(pending)
            self._send(pending)
        except ServiceError as error:
            _resolve(pending, Failed(error))
        except Exception:  # the other jobs of the lost worker are protected
            log.exception("a job could not be sent again")
            _resolve(pending, Failed(InternalError("the image could not be sent to a worker")))

    def _abandon(self, pending: Pending) -> None:
        """Whoever waited has gone, with the answer or without."""
        if pending in self._parked:
            self._parked.remove(pending)
        if pending.link is not None and pending.number in pending.link.pending:
            pending.link.cancel(pending)  # the slot comes back with its `Done`
        else:
            self._slots.release(pending)

    def _done(self, pending: Pending, done: Done) -> None:
        """A worker gave the slot back; one that is leaving did nothing with it."""
        if pending.waiter.done():
            self._slots.release(pending)
        elif done.error is not None and done.error[0] in (Draining.code, WorkerLost.code):
            assert pending.link is not None
            pending.link.up = False
            pending.losses += done.error[0] == WorkerLost.code
            self._send_again(pending)
        else:
            pending.waiter.set_result(done)

    def _outcome(self, pending: Pending, done: Done) -> Outcome:
        if done.error is not None:
            return Failed(translation.error_heard(done.error))
        assert done.trace is not None
        result: Result = Labels(done.class_ids, done.scores)
        if done.shape is not None:
            lying = self._slots.read(pending, done.shape)
            result = translation.source_heard(lying, done.jpeg)
        return Completed(result, translation.trace_heard(done.trace))

    def _on_welcome(self, welcome: Welcome) -> bool:
        """Whether this worker is like the first one: its labels are in answers already given."""
        if not self._welcomed.done():
            self._welcomed.set_result(welcome)
        elif welcome.identity != self._welcomed.result().identity:
            log.error("the worker came back with other weights; this front end must start anew")
            self._on_other()
            return False
        self._current = welcome
        parked, self._parked = self._parked, []
        for pending in parked:
            self._send(pending)
        return True

    def _on_lost(self, taken: list[Pending]) -> None:
        """A worker is gone, and nobody touches its slots any more."""
        for pending in taken:
            pending.losses += 1
            if pending.waiter.done():
                pending.link = None
                self._slots.release(pending)
            else:
                self._send_again(pending)


def _room_for(job: Job) -> int:
    """Bytes for the job's image or file, and for a filter's answer in its place."""
    shape, _ = translation.source_said(job.image)
    size = (0, 0)
    if isinstance(job.operation, FilterChain):
        size = job.operation.size_after(job.image.height, job.image.width)
    return max(math.prod(shape), math.prod(size) * MAX_CHANNELS)


def _resolve(pending: Pending, failed: Failed) -> None:
    if not pending.waiter.done():
        pending.waiter.set_result(failed)
