"""Which jobs ride together, and when. Pure: no clock, lock, thread or torch in here.

Slot first, batch second: `pick` is called by a thread that already holds a free staging slot, so
while the device is busy the next batch grows by itself.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from models.job import Job, Lane, Outcome, ReleaseReason

COMPACT_AT = 64
"""Dead jobs a lane may hold beside as many live ones, before it is swept: amortised O(1) a job."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one micro-batch may be; `ageing` is when a waiting bulk job counts as interactive."""

    max_batch_size: int
    max_batch_pixels: int
    max_queue_delay: float = 0.0
    ageing: float = 1.0


class Ticket:
    """An accepted job on its way. Ends exactly once: picked and answered, dropped, or cancelled."""

    __slots__ = ("cancelled", "enqueued_at", "job", "mailbox", "pixels", "queued", "tag")

    def __init__(self, job: Job, mailbox: "Mailbox", tag: object = None) -> None:
        self.job = job
        self.mailbox = mailbox
        self.tag = tag
        self.pixels = job.image.n_pixels
        self.enqueued_at = 0.0
        self.queued = False
        self.cancelled = False

    def dead(self, now: float) -> bool:
        """Whether nobody waits for it any more."""
        return self.cancelled or self.job.deadline.expired(now)


Mailbox = Callable[[Sequence[tuple[Ticket, Outcome]]], None]
"""Where a waiter gets its outcomes: called once per batch, from a worker thread."""


@dataclass(frozen=True, slots=True)
class Picked:
    """What `pick` found: a batch (maybe empty), the dead it dropped, and when to look again.

    `wake_at` is None when nothing waits, or a batch was found.
    """

    batch: list[Ticket]
    reason: ReleaseReason
    dropped: list[Ticket]
    wake_at: float | None


class _Lane:
    """Jobs of one batch key and one priority, oldest first."""

    __slots__ = ("bulk", "live", "pixels", "tickets")

    def __init__(self, bulk: bool) -> None:
        self.bulk = bulk
        self.tickets: deque[Ticket] = deque()
        self.live = 0
        self.pixels = 0


class MicroBatcher:
    """Lanes of waiting jobs; the oldest head of the most urgent kind goes first."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._lanes: dict[tuple[Hashable, Lane], _Lane] = {}
        self.queued_jobs = 0
        self.queued_pixels = 0

    def add(self, ticket: Ticket, now: float) -> None:
        """Let a job wait from `now` on."""
        job = ticket.job
        key = (job.operation.batch_key, job.lane)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(job.lane is Lane.BULK)
        ticket.enqueued_at, ticket.queued = now, True
        lane.tickets.append(ticket)
        lane.live += 1
        lane.pixels += ticket.pixels
        self.queued_jobs += 1
        self.queued_pixels += ticket.pixels

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits any more: leave the counts at once; the place in the lane is swept later."""
        if ticket.cancelled:
            return
        ticket.cancelled = True
        if not ticket.queued:
            return
        key = (ticket.job.operation.batch_key, ticket.job.lane)
        lane = self._lanes[key]
        self._forget(lane, ticket)
        if len(lane.tickets) > 2 * lane.live + COMPACT_AT:
            lane.tickets = deque(t for t in lane.tickets if not t.cancelled)
        if not lane.live:
            del self._lanes[key]

    def pick(self, now: float) -> Picked:
        """The next batch to run at `now`, or when to ask again."""
        dropped: list[Ticket] = []
        best: tuple[bool, float, tuple[Hashable, Lane]] | None = None
        wake_at: float | None = None
        for key in list(self._lanes):
            head = self._head(key, now, dropped)
            if head is None:
                continue
            lane = self._lanes[key]
            ripe_at = head.enqueued_at + self.limits.max_queue_delay
            if now < ripe_at and not self._full(lane):
                wake_at = ripe_at if wake_at is None else min(wake_at, ripe_at)
                continue
            waits = lane.bulk and now - head.enqueued_at < self.limits.ageing
            rank = (waits, head.enqueued_at)
            if best is None or rank < best[:2]:
                best = (*rank, key)
        if best is None:
            return Picked([], ReleaseReason.IDLE, dropped, wake_at)
        batch, reason = self._form(best[2], now, dropped)
        return Picked(batch, reason, dropped, None)

    def drain(self) -> list[Ticket]:
        """Take out every live job."""
        left = [t for lane in self._lanes.values() for t in lane.tickets if not t.cancelled]
        self._lanes.clear()
        self.queued_jobs = self.queued_pixels = 0
        return left

    def _full(self, lane: _Lane) -> bool:
        limits = self.limits
        return lane.live >= limits.max_batch_size or lane.pixels >= limits.max_batch_pixels

    def _head(
        self, key: tuple[Hashable, Lane], now: float, dropped: list[Ticket]
    ) -> Ticket | None:
        """The oldest living job of a lane; the dead before it are dropped, an empty lane goes."""
        lane = self._lanes[key]
        while lane.tickets:
            head = lane.tickets[0]
            if not head.dead(now):
                return head
            self._drop(lane, dropped)
        del self._lanes[key]
        return None

    def _drop(self, lane: _Lane, dropped: list[Ticket]) -> None:
        ticket = lane.tickets.popleft()
        if not ticket.cancelled:
            self._forget(lane, ticket)
            dropped.append(ticket)

    def _form(
        self, key: tuple[Hashable, Lane], now: float, dropped: list[Ticket]
    ) -> tuple[list[Ticket], ReleaseReason]:
        lane, limits = self._lanes[key], self.limits
        batch: list[Ticket] = []
        pixels = 0
        reason = ReleaseReason.IDLE
        waited = now - lane.tickets[0].enqueued_at
        if limits.max_queue_delay and waited >= limits.max_queue_delay:
            reason = ReleaseReason.DELAY
        while lane.tickets and len(batch) < limits.max_batch_size:
            ticket = lane.tickets[0]
            if ticket.dead(now):
                self._drop(lane, dropped)
                continue
            if batch and pixels + ticket.pixels > limits.max_batch_pixels:
                reason = ReleaseReason.BUDGET
                break
            lane.tickets.popleft()
            self._forget(lane, ticket)
            batch.append(ticket)
            pixels += ticket.pixels
        if not lane.live:
            del self._lanes[key]
        if len(batch) == limits.max_batch_size:
            reason = ReleaseReason.FULL
        return batch, reason

    def _forget(self, lane: _Lane, ticket: Ticket) -> None:
        lane.live -= 1
        lane.pixels -= ticket.pixels
        ticket.queued = False
        self.queued_jobs -= 1
        self.queued_pixels -= ticket.pixels
