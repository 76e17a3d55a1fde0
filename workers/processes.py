"""The backend whose workers are other processes of this host.

A job goes to the worker with the fewest jobs of ours. What a lost worker had not answered goes to
another one or to its successor, while its deadline allows: the work is pure, so a second run is
safe. A job that was with `MAX_LOSSES` workers when they died is suspected, and goes to no other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from models.backend import Load
from models.errors import DeadlineExceeded, Draining, TooManyPixels, WorkerLost
from models.image import Image
from models.job import Completed, Failed, Job, Labels, Lane, Operation, Outcome
from workers import wire
from workers.arena import Arena, Room, Slot
from workers.link import Link, Pending
from workers.wire import Batched, Done, Submit, Welcome

MAX_LOSSES = 2
MAX_CHANNELS = 4
"""A filter's answer is written over its image, and may have more channels."""


class ProcessBackend:
    """The seam onto worker processes at Unix socket `addresses`; belongs to one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        arena_bytes: int,
        drain_timeout: float | None = None,
        on_batch: Callable[[Batched], None] = lambda batched: None,
        say: Callable[[Operation], object] = wire.operation_said,
    ) -> None:
        self._arena = Arena.create(arena_bytes)
        self._room = Room(self._arena.size)
        self._queue: deque[tuple[int, asyncio.Future[Slot]]] = deque()
        self._parked: list[Pending] = []
        self._drain_timeout = drain_timeout
        self._say = say
        self._closing = False
        self._held = 0
        self._idle = asyncio.Event()
        self._up = asyncio.Event()
        self.submitted = 0
        self._links = [
            Link(a, self._arena, self._done, self._on_up, self._on_lost, on_batch)
            for a in addresses
        ]

    async def welcome(self) -> Welcome:
        """The first welcome of a worker, waiting for it."""
        await self._up.wait()
        return next(link.welcome for link in self._links if link.welcome is not None)

    async def run(self, job: Job) -> Completed:
        """The answer of one job. The deadline is enforced here, so a hung worker answers 504."""
        if self._closing:
            raise Draining("this server is stopping; ask another one")
        self._held += 1
        try:
            slot = await self._slot(job)
            outcome = await self._answer(job, slot)
        finally:
            self._held -= 1
            if not self._held:
                self._idle.set()
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome

    def load(self) -> Load:
        """How busy the workers are, by their last reports."""
        reports = [link.load for link in self._links]
        return Load(
            device=", ".join(link.welcome.device for link in self._links if link.welcome) or "none",
            queued_jobs=sum(r.queued_jobs for r in reports) + len(self._parked) + len(self._queue),
            queued_pixels=sum(r.queued_pixels for r in reports),
            running_jobs=sum(r.running_jobs for r in reports),
            service_rate=sum(r.service_rate for r in reports),
            alive=not self._closing and any(link.up for link in self._links),
        )

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then hang up."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        try:
            async with asyncio.timeout(self._drain_timeout):
                if self._held:
                    await self._idle.wait()
        except TimeoutError:
            text = "the server stopped before the image was done; try again"
            for pending in [p for link in self._links for p in link.pending.values()]:
                _resolve(pending, Failed(WorkerLost(text)))
        for link in self._links:
            await link.close()
        self._arena.close()

    async def _slot(self, job: Job) -> Slot:
        """Room in the arena for the job, in turn; waits, at most until its deadline."""
        image = job.image
        channels = MAX_CHANNELS if job.operation.batch_key != "classify" else image.channels
        n_bytes = image.n_pixels * channels
        if n_bytes > self._room.size:
            raise TooManyPixels(f"an image of {image.n_pixels:,} pixels has no room on this server")
        if not self._queue and (slot := self._room.take(n_bytes)) is not None:
            return slot
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        place = (n_bytes, waiter)
        self._queue.append(place)
        try:
            async with asyncio.timeout_at(job.deadline.alarm):
                return await waiter
        except BaseException as error:
            if place in self._queue:
                self._queue.remove(place)
            elif not waiter.cancelled():
                self._free(waiter.result())
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded("the request's deadline passed") from None
            raise

    async def _answer(self, job: Job, slot: Slot) -> Outcome:
        loop = asyncio.get_running_loop()
        self.submitted += 1
        pending = Pending(self.submitted, job, slot, loop.create_future())
        self._send(pending)
        alarm = job.deadline.alarm
        late = Failed(DeadlineExceeded("the request's deadline passed"))
        timer = None if alarm is None else loop.call_at(alarm, _resolve, pending, late)
        try:
            return await pending.waiter
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
        job, image = pending.job, pending.job.image
        shape = (image.height, image.width, image.channels)
        np.copyto(self._arena.pixels(pending.slot, shape), image.pixels)
        frame = Submit(
            pending.number,
            pending.slot.offset,
            pending.slot.size,
            shape,
            self._say(job.operation),
            job.deadline.at,
            job.lane is Lane.BULK,
        )
        min(up, key=lambda link: len(link.pending)).submit(pending, frame)

    def _abandon(self, pending: Pending) -> None:
        """Whoever waited has gone, with the answer or without."""
        if pending in self._parked:
            self._parked.remove(pending)
            self._free(pending.slot)
        elif pending.link is not None:
            pending.link.cancel(pending)

    def _done(self, pending: Pending, done: Done) -> None:
        """A worker gave the slot back."""
        _resolve(pending, self._outcome(pending, done))
        self._free(pending.slot)

    def _outcome(self, pending: Pending, done: Done) -> Outcome:
        if done.error is not None:
            return Failed(wire.error_heard(done.error))
        if done.trace is None or pending.waiter.done():
            return Failed(WorkerLost("the image was given up"))
        result: Labels | Image = Labels(done.class_ids, done.scores)
        if done.shape is not None:
            result = Image(self._arena.pixels(pending.slot, done.shape).copy())
        return Completed(result, wire.trace_heard(done.trace))

    def _on_up(self) -> None:
        self._up.set()
        parked, self._parked = self._parked, []
        for pending in parked:
            self._send(pending)

    def _on_lost(self, taken: list[Pending]) -> None:
        """A worker is gone, and nobody touches its slots any more."""
        for pending in taken:
            pending.link, pending.losses = None, pending.losses + 1
            if not pending.waiter.done() and (pending.losses >= MAX_LOSSES or self._closing):
                text = f"{pending.losses} workers died while they held the image; it was given up"
                _resolve(pending, Failed(WorkerLost(text)))
            if pending.waiter.done():
                self._free(pending.slot)
            else:
                self._send(pending)

    def _free(self, slot: Slot) -> None:
        """Take a slot back and give the room to who waits for it longest."""
        self._arena.forget(slot)
        self._room.give_back(slot)
        while self._queue:
            n_bytes, waiter = self._queue[0]
            if not waiter.done():
                found = self._room.take(n_bytes)
                if found is None:
                    return
                waiter.set_result(found)
            self._queue.popleft()


def _resolve(pending: Pending, outcome: Outcome) -> None:
    if not pending.waiter.done():
        pending.waiter.set_result(outcome)
