"""A worker: for each engine a launch thread takes a slot, then a batch; a collect thread ends it.

Guarantees: every accepted job that is not cancelled ends exactly once, with its own outcome; no job
ends a thread. Outcomes go to the tickets' mailboxes; no event loop is used here.
"""

import itertools
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Generic

from models.domain.backend import Load
from models.domain.errors import DeadlineExceeded, Draining, InternalError, ServiceError, WorkerLost
from models.domain.image import Pixels
from models.domain.job import Failed, Job, Lane, ReleaseReason
from models.threads import lower_priority
from workers.scheduling.batch import Batch, Observer
from workers.scheduling.batcher import ALL, BatchLimits, MicroBatcher, Picked
from workers.scheduling.engine import BatchResult, Engine, EngineLost, SlotT
from workers.scheduling.ticket import Mailbox, Ticket, deliver

NEWEST = 0.1
"""Weight of the newest batch: about the last ten batches count."""


class Throughput:
    """Jobs per second while a worker is busy, exponentially weighted; 0 before the first batch.

    `decoding` is the share of the time, 0…1, in which JPEGs were being decoded.
    """

    def __init__(self) -> None:
        self.per_second = self.decoding = 0.0
        self._last_done = 0.0

    def add(self, jobs: int, launched_at: float, done_at: float, decode: float = 0.0) -> float:
        """Add a finished batch; return its seconds, from the end of the batch before, or from its
        launch on an idle device.

        `decode` seconds of that, and perhaps of the time before, went into decoding. Without `jobs`
        the rate stays as it is.
        """
        busy = done_at - max(self._last_done, launched_at)
        self._last_done = done_at
        if busy > 0 and jobs:
            share = NEWEST if self.per_second else 1.0
            self.per_second += (jobs / busy - self.per_second) * share
            self.decoding += (min(decode / busy, 1.0) - self.decoding) * share
        return max(busy, 0.0)


# The batches that a device has been given, and the halves of those that failed. It belongs to one
# worker, which calls everything here with its lock held.


class UnderWay:
    """Batches from their release to their claim; `jobs` counts their jobs, `finished` all jobs that
    have ended.

    `trial`: the batch is a job that must be alone on the device.
    """

    def __init__(self) -> None:
        self._batches: set[Batch] = set()
        self._halves: deque[Batch] = deque()
        self.jobs = self.finished = 0
        self.trial = False

    @property
    def idle(self) -> bool:
        """Return whether the device has no batch."""
        return not self._batches

    def over(self, batcher: MicroBatcher) -> bool:
        """Return whether no job is left: on the device, in halves of failed batches, or waiting."""
        return not (self._halves or self.jobs or batcher.queued_jobs)

    def picked(self, batcher: MicroBatcher, now: float, kinds: Collection[Lane] = ALL) -> Picked:
        """Return half of a failed batch, or the batcher's pick of some kinds of lanes; nothing
        beside a job that is alone.
        """
        if self.trial:
            return Picked([], ReleaseReason.IDLE, [], None)
        if self._halves and Lane.INTERACTIVE in kinds:
            return self._again(now)
        return batcher.pick(now, idle=self.idle, kinds=kinds)

    def add(self, batch: Batch) -> None:
        """Record that the device is given a batch."""
        self.trial = batch.tickets[0].alone
        self._batches.add(batch)
        self.jobs += len(batch.tickets)

    def claim(self, batch: Batch, halves: tuple[Batch, ...]) -> bool:
        """Return whether the batch was still there, which is true once; queue its halves."""
        if batch not in self._batches:
            return False
        self._batches.remove(batch)
        self._halves.extend(halves)
        self.jobs -= len(batch.tickets)
        self.finished += 1
        self.trial = False
        return True

    def _again(self, now: float) -> Picked:
        """Return half of a failed batch without the jobs whose deadline has passed meanwhile."""
        half = self._halves.popleft()
        alive = [t for t in half.tickets if not t.is_over(now)]
        return Picked(alive, half.reason, [t for t in half.tickets if t.is_over(now)], None)

    def clear(self) -> list[Ticket]:
        """Take out every job that is not finished."""
        left = [t for batch in (*self._halves, *self._batches) for t in batch.tickets]
        self._halves.clear()
        self._batches.clear()
        self.jobs = 0
        return left


# One engine of a worker, and its batches between the threads that launch and collect them.


class EngineLine(Generic[SlotT]):
    """An engine that computes the batches of lanes of some `kinds`.

    `changed` is notified, under the lock of the worker, when there may be a batch for it; `waiting`
    says that its launch thread waits for that. Where it `yields`, its threads have a lower priority
    than all threads beside them. A thread is `launching` batches, and others are `collecting` them.
    """

    def __init__(
        self, engine: Engine[SlotT], kinds: frozenset[Lane], lock: threading.RLock, *, yields: bool
    ) -> None:
        self.engine = engine
        self.kinds = kinds
        self.yields = yields
        self.changed = threading.Condition(lock)
        self.waiting = False
        self.launched: queue.SimpleQueue[tuple[SlotT, Batch] | None] = queue.SimpleQueue()
        self.launching: list[threading.Thread] = []
        self.collecting: list[threading.Thread] = []

    def wake(self, ticket: Ticket) -> None:
        """Wake the launch thread for a new job if it waits; else it looks before it waits."""
        if self.waiting and (ticket.alone or ticket.job.lane in self.kinds):
            self.changed.notify()


log = logging.getLogger("darkroom.worker")


class Worker(Generic[SlotT]):
    """Runs jobs on `engine`; `on_batch` sees every finished batch without the server's own
    jobs, on a collect thread.

    `progress` grows while a batch that is not finished gets work done. Jobs in the background are
    computed by `background`, if it exists, beside all further jobs, on threads of low priority.
    """

    def __init__(
        self,
        engine: Engine[SlotT],
        limits: BatchLimits,
        on_batch: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[], float] = lambda: 0.0,
        background: Engine[SlotT] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_batch = on_batch
        self._progress = progress
        self._made_for = limits
        self._batcher = MicroBatcher(limits)
        self._lock = threading.RLock()
        self._under_way = UnderWay()
        self._stopping = self._alive = False
        self._numbers = itertools.count(1)
        self._rate = Throughput()
        behind = frozenset({Lane.BACKGROUND} if background is not None else ())
        self._lines = [EngineLine(engine, ALL - behind, self._lock, yields=False)]
        if background is not None:
            self._lines.append(EngineLine(background, behind, self._lock, yields=True))

    def start(self) -> None:
        """Start the threads."""
        self._alive = True
        for line in self._lines:
            line.launching = [self._thread(line, self._launch_loop, "launch")]
            n = line.engine.collectors
            line.collecting = [self._thread(line, self._collect_loop, "collect") for _ in range(n)]
            for thread in (*line.launching, *line.collecting):
                thread.start()

    def submit(
        self,
        job: Job,
        mailbox: Mailbox,
        tag: object = None,
        on_device: Callable[[bool], None] | None = None,
        alone: bool = False,
    ) -> Ticket:
        """Accept a job as `Ticket` explains; raises Draining or WorkerLost."""
        ticket = Ticket(job, mailbox, tag, on_device, alone)
        with self._lock:
            if self._stopping:
                raise Draining("this server is stopping; ask another one")
            if not self._alive:
                raise WorkerLost("the worker is not running; try again later")
            self._batcher.add(ticket, self._clock())
            for line in self._lines:
                line.wake(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        """Cancel a job; return True if it was waiting: it is never launched and has no outcome."""
        with self._lock:
            waited = self._batcher.cancel(ticket)
            if waited and ticket.alone:
                self._notify()  # other jobs need not wait for it any more
            return waited

    def share(self, memory: Pixels, n_bytes: int) -> None:
        """Tell the engine of memory that will hold images of jobs, as `Engine.share` says."""
        self._engine.share(memory, n_bytes)

    def load(self) -> Load:
        """Return the load of the worker; takes no lock."""
        batcher = self._batcher
        return Load(
            device=self._engine.device,
            queued_jobs=batcher.queued_jobs,
            running_jobs=self._under_way.jobs,
            service_rate=self._rate.per_second,
            alive=self._alive,
            takes_jpegs=self._engine.takes_jpegs,
            decoding=self._rate.decoding,
            progress=self._under_way.finished + self._progress(),
        )

    def set_batching(self, size: int, pixels: int, delay: float) -> None:
        """Form batches by new limits from now on, within the limits that the engine was made
        for.
        """
        with self._lock:
            self._batcher.limits = self._made_for.within(size, pixels, delay)
            self._notify()

    def stop(self, timeout: float | None = None) -> bool:
        """Refuse new jobs, finish the accepted jobs, end the threads and the engine.

        After `timeout` seconds the rest fails with WorkerLost, and False is returned: threads and
        engine are abandoned, and may still use the images of jobs that the device has.
        """
        with self._lock:
            self._stopping = True
            self._notify()
        until = None if timeout is None else self._clock() + timeout

        def ended(thread: threading.Thread) -> bool:
            thread.join(None if until is None else max(0.0, until - self._clock()))
            return not thread.is_alive()

        if not all([ended(thread) for line in self._lines for thread in line.collecting]):
            self._end()
            return False
        for line in self._lines:
            line.engine.close()  # wakes its launch thread, should it still wait for a slot
        return all([ended(thread) for line in self._lines for thread in line.launching])

    def _thread(
        self, line: EngineLine[SlotT], loop: Callable[[EngineLine[SlotT]], None], name: str
    ) -> threading.Thread:
        def run() -> None:
            if line.yields:
                lower_priority()
            try:
                loop(line)
            except BaseException:  # protects waiting callers: `_end` answers them
                log.exception("the worker died")
            self._end()

        return threading.Thread(target=run, name=name, daemon=True)

    def _notify(self) -> None:
        """Let all launch threads look for a batch again; the caller holds the lock."""
        for line in self._lines:
            line.changed.notify()

    def _end(self) -> None:
        """Fail every job that was accepted and is not finished: after a drain, none."""
        with self._lock:
            self._alive = False
            left = self._batcher.drain() + self._under_way.clear()
            self._notify()
        text = "the worker stopped before the image was done; try again"
        deliver([(ticket, Failed(WorkerLost(text))) for ticket in left])
        for line in self._lines:
            line.launched.put(None)

    def _launch_loop(self, line: EngineLine[SlotT]) -> None:
        engine = line.engine
        while (slot := engine.acquire()) is not None:
            batch = self._next_batch(line)
            if batch is None:
                engine.release(slot)
                break
            try:
                engine.launch(slot, [t.job for t in batch.tickets])
            except Exception as error:  # the neighbours of a guilty job are protected
                engine.release(slot)
                self._bisect(batch, error)
            else:
                line.launched.put((slot, batch))
            del batch  # or its images would stay until the next one

    def _next_batch(self, line: EngineLine[SlotT]) -> Batch | None:
        """Wait for the next batch and return it; None when nothing is left or nothing may run."""
        while True:
            batch = None
            with self._lock:
                now = self._clock()
                picked = self._under_way.picked(self._batcher, now, line.kinds)
                if picked.batch:
                    name = f"{os.getpid()}-{next(self._numbers)}"
                    batch = Batch(picked.batch, picked.reason, now, name)
                    self._under_way.add(batch)
                    batch.note_device(True)
                if any(ticket.alone for ticket in picked.dropped):
                    self._notify()  # other jobs need not wait for it any more
                if not (picked.batch or picked.dropped):
                    if not self._alive or (self._stopping and self._under_way.over(self._batcher)):
                        return None
                    line.waiting = True
                    line.changed.wait(None if picked.wake_at is None else picked.wake_at - now)
                    line.waiting = False
            if picked.dropped:
                text = "the deadline passed while the job waited"
                deliver([(t, Failed(DeadlineExceeded(text))) for t in picked.dropped])
            if batch is not None:
                return batch

    def _collect_loop(self, line: EngineLine[SlotT]) -> None:
        while self._collected(line):  # its frame ends each time: a waiting thread holds no images
            pass
        line.launched.put(None)  # for the next collect thread

    def _collected(self, line: EngineLine[SlotT]) -> bool:
        """Finish the next batch; return False if there are no more."""
        if (launched := line.launched.get()) is None:
            return False
        slot, batch = launched
        try:
            result = line.engine.collect(slot)
            if len(result.values) != len(batch.tickets):
                raise ValueError(f"{len(result.values)} values, {len(batch.tickets)} jobs")
        except Exception as error:  # the neighbours of a guilty job are protected
            line.engine.release(slot)
            self._bisect(batch, error)
        else:
            line.engine.release(slot)  # first: the next batch can be launched meanwhile
            self._finish(batch, result)
        return True

    def _finish(self, batch: Batch, result: BatchResult) -> None:
        with self._lock:
            counted = replace(batch, tickets=[each for each in batch.tickets if each.job.counted])
            jobs, launched_at = len(counted.tickets), batch.launched_at
            seconds = self._rate.add(jobs, launched_at, self._clock(), result.decode)
        outcomes = batch.outcomes(result, self._batcher.limits.max_batch_size)
        if self._claim(batch):
            deliver(outcomes)
        if self._on_batch is not None and counted.tickets:
            try:
                self._on_batch(counted, seconds)
            except Exception:  # this thread is protected from a failing observer
                log.warning("a batch could not be observed", exc_info=True)

    def _bisect(self, batch: Batch, error: Exception) -> None:
        """Run the halves of a failed batch again, until the guilty job fails alone."""
        if isinstance(error, EngineLost):
            raise error  # no later batch can succeed: the thread answers what is left
        if len(batch.tickets) > 1:
            log.warning("%d jobs failed together, halving", len(batch.tickets), exc_info=error)
            self._claim(batch, batch.halves())
            return
        log.error("a job failed", exc_info=error)
        if not isinstance(error, ServiceError):
            error = InternalError("the image could not be processed; it has been logged")
        if self._claim(batch):
            deliver([(batch.tickets[0], Failed(error))])

    def _claim(self, batch: Batch, halves: tuple[Batch, ...] = ()) -> bool:
        """Return True to the first caller, unless the worker was given up before: answer it."""
        with self._lock:
            trial = self._under_way.trial
            if not self._under_way.claim(batch, halves):
                return False
            # Before another batch can be launched: what that one does to this process is not their
            # fault, although their answers may not have left yet.
            batch.note_device(False)
            if halves or self._stopping or trial or self._batcher.suspects:
                self._notify()
            return True
