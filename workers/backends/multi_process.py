"""The backend whose workers are other processes of this host.

A job goes to the worker with the least unanswered work. Jobs that a lost worker
had not answered go to another one or to its successor, while their deadline allows: the work is
pure, so a second run is safe. A job that the device had been given when its worker died is computed
alone the next time, and fails if that worker dies too: only it can be the cause. Its content is
then refused.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import numpy as np

from models.domain.alarms import alarms
from models.domain.backend import Load
from models.domain.errors import Draining, WorkerLost
from models.domain.job import (
    Completed,
    Failed,
    Job,
    Labels,
    Operation,
    Outcome,
    Result,
    Vector,
)
from workers.backends.absence import Absence
from workers.backends.quarantine import Quarantine
from workers.ipc import conversion
from workers.ipc.arena import Arena, ArenaSlot
from workers.ipc.frames import Batched, Done, Submit, Welcome
from workers.ipc.worker_client import RETRY, ArenaSlots, Hooks, Lost, Pending, WorkerConnection
from workers.operations import FilterChain

log = logging.getLogger("darkroom.processes")

MAX_LOSSES = 2
MAX_CHANNELS = 4
"""Channels of the largest answer: a filter writes it over its image, and it may have more."""


class UnansweredWork(Protocol):
    """The pixels that each worker has been given and has not answered."""

    def add(self, worker: int, pixels: int) -> None:
        """Add to a worker's work; the sum of what this process adds is 0 once all is answered."""

    def totals(self) -> Sequence[int]:
        """Return the work of each worker, over all processes that give it some."""


class OwnWork:
    """The work that this process alone has given to `workers` workers."""

    def __init__(self, workers: int) -> None:
        self._totals = [0] * workers

    def add(self, worker: int, pixels: int) -> None:
        """Add to a worker's work."""
        self._totals[worker] += pixels

    def totals(self) -> Sequence[int]:
        """Return the work of each worker."""
        return self._totals


class ProcessBackend:
    """Backend on worker processes at Unix socket `addresses`; belongs to one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        arena_bytes: int,
        drain_timeout: float | None = None,
        on_batch: Callable[[Batched], None] = lambda _batched: None,
        on_other: Callable[[], object] = lambda: None,
        encode: Callable[[Operation], object] = conversion.encode_operation,
        work: "UnansweredWork | None" = None,
    ) -> None:
        self._arena = Arena.create(arena_bytes)
        self._slots = ArenaSlots(self._arena)
        self._parked: list[Pending] = []
        self._drain_timeout = drain_timeout
        self._on_other, self._encode = on_other, encode
        self._closing, self._held = False, 0
        self._idle = asyncio.Event()
        self._absence = Absence()
        self._quarantine = Quarantine()
        self._work = work or OwnWork(len(addresses))
        self._welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._current: Welcome | None = None
        self._device, self.submitted = "none", 0
        self._load: Load | None = None
        changed = partial(setattr, self, "_load", None)  # it is added up again when it is read
        hooks = Hooks(self._done, self._on_welcome, self._on_lost, on_batch, on_load=changed)
        self._links = [WorkerConnection(address, self._arena, hooks) for address in addresses]

    async def welcome(self, patience: float = 0.0) -> Welcome:
        """Return the first welcome of a worker, waiting for it.

        Then wait for the welcomes of all other workers, at most `patience` seconds.
        """
        first = await asyncio.shield(self._welcomed)
        end = time.monotonic() + patience
        while time.monotonic() < end and not all([link.welcome for link in self._links]):  # noqa: ASYNC110
            await asyncio.sleep(RETRY)
        return first

    @property
    def current(self) -> Welcome:
        """Return the last welcome of a worker; there must have been one."""
        return self._current or self._welcomed.result()

    async def run(self, job: Job) -> Completed:
        """Return the answer of one job; a hung worker is answered with 504 at the deadline."""
        if self._closing:
            raise Draining("this server is stopping; ask another one")
        self._held += 1
        try:
            await self._quarantine.check(job.image)
            slot = await self._slots.take(bytes_for(job), job.deadline)
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
        """Return the load of the workers by their last reports, added up once for each report."""
        waiting, known = len(self._parked) + self._slots.waiting, self._load
        if known is None or waiting or not known.alive or self._closing:
            known = combined(self._links, self._device, waiting, self._absence, self._closing)
            self._load = None if waiting else known
        return known

    def loads(self) -> list[Load]:
        """Return the load of each device."""
        return by_device(self._links)

    def absence(self) -> float:
        """Return the seconds until a worker is expected to run again; 0 while one does."""
        if self._closing or (self._load or self.load()).alive:
            return 0.0
        alive = any([link.line is not None for link in self._links])
        return self._absence.back_in(alive, hands_over=hands_over(self._links))

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then close the connections."""
        if self._closing:
            return
        self._closing = True
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout if self._held else 0):
                await self._idle.wait()
        lost = WorkerLost("the server stopped before the image was done; try again")
        lines = [line for link in self._links for line in link.lines]
        for pending in [*self._parked, *(p for line in lines for p in line.pending.values())]:
            pending.fail(lost)
        self._slots.refuse(lost)
        await asyncio.gather(*(link.close() for link in self._links))
        self._arena.close()

    async def _answer(self, job: Job, slot: ArenaSlot) -> Outcome:
        self.submitted += 1
        pending = Pending(self.submitted, job, slot, asyncio.get_running_loop().create_future())
        alarm = alarms().set(job.deadline, pending.expire, ends_early=False)
        try:
            await self._slots.copied(pending, self._slots.write, pending)
            self._send(pending)
            while isinstance(done := await pending.waiter, Lost):
                if (failed := await self._given_up(pending, done)) is not None:
                    return failed
                await self._send_again(pending)
            if isinstance(done, Failed):
                return done
            return await self._slots.copied(pending, outcome_of, self._slots, pending, done)
        finally:
            alarm.cancel()
            self._abandon(pending)

    def _send(self, pending: Pending) -> None:
        """Send a job to the worker with the least unanswered work; park it while there is none.

        Join the shortest queue, over all front ends (Gupta et al., 2007, "Analysis of
        join-the-shortest-queue routing for web server farms",
        https://doi.org/10.1016/j.peva.2007.06.012). The queue of a slower GPU gets shorter slowly,
        so this GPU gets fewer images.
        """
        up = [n for n, link in enumerate(self._links) if link.line is not None]
        if not up:
            self._parked.append(pending)
            return
        assert pending.slot is not None
        # The mark of the last job in this slot must be gone before a worker has this one, or its
        # crash would make an innocent job a suspect.
        self._arena.mark(pending.slot, False)
        frame = frame_of(pending, self._encode)  # an error here must leave no work with a worker
        pending.worker = up[0] if len(up) == 1 else min(up, key=self._work.totals().__getitem__)
        self._work.add(pending.worker, pending.job.image.n_pixels)
        self._links[pending.worker].lines[-1].submit(pending, frame)

    async def _given_up(self, pending: Pending, lost: Lost) -> Failed | None:
        """Return why a job of a lost worker is not sent again; None if it is."""
        pending.line = None
        pending.losses += lost.launched
        if self._closing:
            return Failed(WorkerLost("the server stopped before the image was done; try again"))
        if pending.losses < MAX_LOSSES:
            pending.alone = pending.losses > 0
            return None
        await self._quarantine.add(pending.job.image)
        died = f"{pending.losses} workers died while they held the image"
        return Failed(WorkerLost(f"{died}; it was given up"))

    async def _send_again(self, pending: Pending) -> None:
        """Send a job again from its image: a filter may have been writing over the slot."""
        pending.waiter = asyncio.get_running_loop().create_future()
        if pending.job.deadline.expired(time.monotonic()):  # the alarm of the job may have rung
            pending.expire()
        await self._slots.copied(pending, self._slots.write, pending)
        if not pending.waiter.done():
            self._send(pending)

    def _abandon(self, pending: Pending) -> None:
        """Stop waiting for a job, answered or not."""
        if pending in self._parked:
            self._parked.remove(pending)
        if pending.line is not None and pending.number in pending.line.pending:
            pending.line.cancel(pending)  # the slot comes back with its `Done`
        else:
            self._slots.release(pending)

    def _done(self, pending: Pending, done: Done) -> None:
        """Accept a slot that a worker gave back; a leaving worker did nothing with it."""
        self._work.add(pending.worker, -pending.job.image.n_pixels)
        if pending.waiter.done():
            self._slots.release(pending)
        elif done.error is not None and done.error[0] in (Draining.code, WorkerLost.code):
            assert pending.line is not None
            pending.line.up, self._load = False, None
            self._lose(pending, done.error[0] == WorkerLost.code)
        else:
            pending.waiter.set_result(done)

    def _lose(self, pending: Pending, died: bool) -> None:
        assert pending.slot is not None
        pending.waiter.set_result(Lost(died and self._arena.launched(pending.slot)))

    def _on_welcome(self, welcome: Welcome) -> bool:
        """Return whether this worker equals the first one, whose labels clients have seen."""
        self._device = ", ".join(link.welcome.device for link in self._links if link.welcome)
        if not self._welcomed.done():
            self._welcomed.set_result(welcome)
        elif welcome.identity != self._welcomed.result().identity:
            log.error("the worker came back with other weights; this front end must start anew")
            self._on_other()
            return False
        self._current = welcome.beside([link.welcome for link in self._links if link.welcome])
        self._absence.ended(welcome.start)
        parked, self._parked = self._parked, []
        for pending in parked:
            self._send(pending)
        return True

    def _on_lost(self, taken: list[Pending]) -> None:
        """Handle a lost worker, which no longer touches its slots."""
        for pending in taken:
            self._work.add(pending.worker, -pending.job.image.n_pixels)
            if pending.waiter.done():
                pending.line = None
                self._slots.release(pending)
            else:
                self._lose(pending, died=True)


# A job as a frame and bytes in its slot; an answer as an outcome.


def bytes_for(job: Job) -> int:
    """Return the bytes for the job's image or file, and for a filter's answer in its place."""
    n_bytes = conversion.content_of(job.image).nbytes
    if not isinstance(job.operation, FilterChain):
        return n_bytes
    size = job.operation.size_after(job.image.height, job.image.width)
    return max(n_bytes, math.prod(size) * MAX_CHANNELS)


def frame_of(pending: Pending, encode: Callable[[Operation], object]) -> Submit:
    """Return the frame for a job; `encode` converts its operation to values for MessagePack."""
    job, slot = pending.job, pending.slot
    assert slot is not None
    shape, jpeg = conversion.encode_source(job.image)
    return Submit(
        pending.number,
        slot.offset,
        slot.size,
        shape,
        encode(job.operation),
        job.deadline.at,
        job.lane._value_,
        jpeg,
        pending.alone,
        job.counted,
    )


def outcome_of(slots: ArenaSlots, pending: Pending, done: Done) -> Outcome:
    """Return a copy of a worker's answer."""
    if done.error is not None:
        return Failed(conversion.decode_error(done.error))
    assert done.trace is not None
    result: Result = Labels(done.class_ids, done.scores)
    if done.vector is not None:
        result = Vector(np.frombuffer(done.vector, np.float32))
    elif done.shape is not None:
        lying = slots.read(pending, done.shape)
        result = conversion.decode_source(lying, done.jpeg)
    return Completed(result, conversion.decode_trace(done.trace))


# The load of the workers together, by their last reports.


def hands_over(links: Sequence[WorkerConnection]) -> bool:
    """Return whether a worker left for a successor that has not answered yet."""
    return any(link.lines and link.lines[-1].left for link in links)


def by_device(links: Sequence[WorkerConnection]) -> list[Load]:
    """Return the load of each device, of all workers on it that have been welcomed."""
    found: dict[str, list[WorkerConnection]] = {}
    for link in links:
        if link.welcome is not None:
            found.setdefault(link.welcome.device, []).append(link)
    return [combined(each, name, 0, Absence(), closing=False) for name, each in found.items()]


def combined(
    links: Sequence[WorkerConnection], device: str, waiting: int, absence: Absence, closing: bool
) -> Load:
    """Return the load of all workers together; `waiting` jobs have not been sent to one yet."""
    jobs = pixels = running = 0
    progress = rate = 0.0
    decoding = math.inf
    alive = takes_jpegs = False
    for link in links:
        for line in link.lines:
            if not line.gone.is_set():
                report = line.load
                jobs += report.queued_jobs
                pixels += report.queued_pixels
                running += report.running_jobs
                progress += report.progress
        if (up := link.line) is not None:
            alive = not closing
            rate += up.load.service_rate
            decoding = min(decoding, up.load.decoding)
            takes_jpegs = takes_jpegs or bool(up.welcome and up.welcome.takes_jpegs)
    return Load(
        device=device,
        queued_jobs=jobs + waiting,
        queued_pixels=pixels,
        running_jobs=running,
        service_rate=absence.rate(rate, alive),
        alive=alive,
        takes_jpegs=takes_jpegs,
        decoding=0.0 if math.isinf(decoding) else decoding,
        back_in=None if closing else absence.back_in(alive, hands_over=hands_over(links)),
        progress=progress,
    )
