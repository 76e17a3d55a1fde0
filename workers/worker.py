"""One engine, two threads: launch takes a slot, then a batch; collect finishes every job of it.

Guarantees: every accepted job that is not cancelled ends exactly once, with its own outcome; a
thread never dies of one job. Knows no event loop; outcomes go to the tickets' mailboxes.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from models.backend import Load
from models.errors import DeadlineExceeded, Draining, InternalError, ServiceError, WorkerLost
from models.job import Completed, Failed, Job, Outcome, ReleaseReason, Trace
from workers.batcher import BatchLimits, MicroBatcher, Picked
from workers.delivery import Mailbox, Ticket, deliver
from workers.engine import BatchResult, Engine, SlotT
from workers.rate import ServiceRate

log = logging.getLogger("darkroom.worker")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A micro-batch under way."""

    tickets: Sequence[Ticket]
    reason: ReleaseReason
    launched_at: float


Observer = Callable[[Batch, BatchResult], None]


class Worker(Generic[SlotT]):
    """Runs jobs on `engine`; `on_batch` sees every finished batch."""

    def __init__(
        self,
        engine: Engine[SlotT],
        limits: BatchLimits,
        on_batch: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_batch = on_batch
        self._batcher = MicroBatcher(limits)
        self._changed = threading.Condition()
        self._halves: deque[Batch] = deque()
        self._under_way: list[Batch] = []
        self._launched: queue.SimpleQueue[tuple[SlotT, Batch] | None] = queue.SimpleQueue()
        self._running = 0
        self._stopping = False
        self._alive = False
        self._waiting = False
        self._rate = ServiceRate()
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=name, daemon=True)
            for name, loop in (("launch", self._launch_loop), ("collect", self._collect_loop))
        ]

    def start(self) -> None:
        """Start both threads."""
        self._alive = True
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, mailbox: Mailbox, tag: object = None) -> Ticket:
        """Accept a job; its outcome goes to `mailbox`. Raises Draining or WorkerLost."""
        ticket = Ticket(job, mailbox, tag)
        with self._changed:
            if not self._alive:
                raise WorkerLost("the worker is not running; try again later")
            if self._stopping:
                raise Draining("this server is stopping; ask another one")
            self._batcher.add(ticket, self._clock())
            if self._waiting:
                self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for this job any more; if it has not been launched, it never will be."""
        with self._changed:
            self._batcher.cancel(ticket)

    def load(self) -> Load:
        """How busy the worker is; takes no lock."""
        batcher = self._batcher
        return Load(
            device=self._engine.device,
            queued_jobs=batcher.queued_jobs,
            queued_pixels=batcher.queued_pixels,
            running_jobs=self._running,
            service_rate=self._rate.per_second,
            alive=self._alive,
        )

    def stop(self, timeout: float | None = None) -> None:
        """Refuse new jobs, finish the accepted ones, end both threads and the engine.

        After `timeout` seconds what is left is failed with WorkerLost and the threads abandoned.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        until = None if timeout is None else self._clock() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - self._clock()))
        if any(thread.is_alive() for thread in self._threads):
            self._die()
        self._alive = False
        self._engine.close()

    def _guarded(self, loop: Callable[[], None]) -> None:
        """Run a thread's loop; if it dies of a bug of ours, nobody waits for ever."""
        try:
            loop()
        except BaseException:
            log.exception("the worker died")
            self._die()
            raise

    def _die(self) -> None:
        """Fail whatever was accepted; nobody waits for ever."""
        with self._changed:
            self._alive = False
            left = self._batcher.drain()
            left += [t for batch in (*self._halves, *self._under_way) for t in batch.tickets]
            self._halves.clear()
            self._under_way.clear()
            self._running = 0
            self._changed.notify_all()
        lost = Failed(WorkerLost("the worker stopped before the image was done; try again"))
        deliver([(ticket, lost) for ticket in left])
        self._launched.put(None)

    def _launch_loop(self) -> None:
        while (slot := self._engine.acquire()) is not None:
            batch = self._next_batch()
            if batch is None:
                self._engine.release(slot)
                break
            try:
                self._engine.launch(slot, [t.job for t in batch.tickets])
            except Exception as error:  # the neighbours of a guilty job are protected
                self._engine.release(slot)
                self._bisect(batch, error)
            else:
                self._launched.put((slot, batch))
        self._launched.put(None)

    def _next_batch(self) -> Batch | None:
        """The next batch, waiting for one; None when stopping and nothing is left."""
        while True:
            with self._changed:
                now = self._clock()
                picked = self._again(now) if self._halves else self._batcher.pick(now)
                if picked.batch:
                    batch = Batch(picked.batch, picked.reason, now)
                    self._under_way.append(batch)
                    self._running += len(picked.batch)
                elif not picked.dropped:
                    if not self._alive or (self._stopping and not self._busy()):
                        return None
                    self._waiting = True
                    self._changed.wait(None if picked.wake_at is None else picked.wake_at - now)
                    self._waiting = False
            if picked.dropped:
                expired = Failed(DeadlineExceeded("the deadline passed while the job waited"))
                deliver([(t, expired) for t in picked.dropped])
            if picked.batch:
                return batch

    def _again(self, now: float) -> Picked:
        """Half of a failed batch, less those who died meanwhile."""
        half = self._halves.popleft()
        alive = [t for t in half.tickets if not t.dead(now)]
        return Picked(alive, half.reason, [t for t in half.tickets if t.dead(now)], None)

    def _busy(self) -> bool:
        return bool(self._under_way or self._halves or self._batcher.queued_jobs)

    def _collect_loop(self) -> None:
        while (launched := self._launched.get()) is not None:
            slot, batch = launched
            try:
                result = self._engine.collect(slot)
            except Exception as error:  # the neighbours of a guilty job are protected
                self._engine.release(slot)
                self._bisect(batch, error)
            else:
                self._engine.release(slot)
                self._finish(batch, result)

    def _finish(self, batch: Batch, result: BatchResult) -> None:
        limit = self._batcher.limits.max_batch_size
        size = len(batch.tickets)
        outcomes: list[tuple[Ticket, Outcome]] = []
        for ticket, value in zip(batch.tickets, result.values, strict=True):
            if isinstance(value, ServiceError):
                outcomes.append((ticket, Failed(value)))
                continue
            trace = Trace(
                batch.launched_at - ticket.enqueued_at,
                result.upload,
                result.compute,
                result.download,
                size,
                limit,
                batch.reason,
            )
            outcomes.append((ticket, Completed(value, trace)))
        self._rate.add(size, batch.launched_at, self._clock())
        self._done(batch)
        deliver(outcomes)
        if self._on_batch is not None:
            try:
                self._on_batch(batch, result)
            except Exception:  # this thread is protected from a failing observer
                log.warning("a batch could not be observed", exc_info=True)

    def _bisect(self, batch: Batch, error: Exception) -> None:
        """Run the halves of a failed batch again, until the guilty job fails alone."""
        tickets = batch.tickets
        if len(tickets) > 1:
            middle = len(tickets) // 2
            with self._changed:
                for half in (tickets[:middle], tickets[middle:]):
                    self._halves.append(Batch(half, batch.reason, batch.launched_at))
                self._forget(batch)
            return
        log.error("a job failed", exc_info=error)
        failure = Failed(InternalError("the image could not be processed; it has been logged"))
        self._done(batch)
        deliver([(tickets[0], failure)])

    def _done(self, batch: Batch) -> None:
        with self._changed:
            self._forget(batch)

    def _forget(self, batch: Batch) -> None:
        """Called with the lock held."""
        if batch in self._under_way:
            self._under_way.remove(batch)
            self._running -= len(batch.tickets)
        if self._halves or self._stopping:
            self._changed.notify()
