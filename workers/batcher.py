"""Which jobs ride together, and when. Pure: no clock, lock, thread or torch in here.

Slot first, batch second: `pick` is called by a thread that already holds a free staging slot, so
while the device is busy the next batch grows by itself.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from models.job import Job, Lane, ReleaseReason
from workers.delivery import Ticket


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one micro-batch may be; `ageing` is when a waiting bulk job counts as interactive.

    Times in seconds. A single image over `max_batch_pixels` rides alone, and so does every job
    that is `alone`: it gains nothing from company, and would only wait for its neighbours.
    """

    max_batch_size: int
    max_batch_pixels: int
    max_queue_delay: float = 0.0
    ageing: float = 1.0
    alone: Callable[[Job], bool] = lambda job: False


@dataclass(frozen=True, slots=True)
class Picked:
    """What `pick` found: a batch (maybe empty), the expired it dropped, and when to look again.

    `wake_at` is None when nothing waits, or a batch was found.
    """

    batch: list[Ticket]
    reason: ReleaseReason
    dropped: list[Ticket]
    wake_at: float | None


class _Lane:
    """Jobs of one batch key and one priority, oldest first; `most` of them share a batch.

    Ordered and linked, so that a cancelled job leaves in O(1) and takes its image with it.
    """

    __slots__ = ("bulk", "most", "pixels", "tickets")

    def __init__(self, bulk: bool, most: int) -> None:
        self.bulk = bulk
        self.most = most
        self.pixels = 0
        self.tickets: OrderedDict[Ticket, None] = OrderedDict()


class MicroBatcher:
    """Lanes of waiting jobs; the oldest head of the most urgent kind goes first.

    A job costs O(1) over its life, however it ends; `pick` looks once at every lane's head.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._lanes: dict[tuple[Hashable, Lane], _Lane] = {}
        self.queued_jobs = 0
        self.queued_pixels = 0

    def add(self, ticket: Ticket, now: float) -> None:
        """Let a job wait from `now` on."""
        lane = self._lanes.get(ticket.key)
        if lane is None:
            most = 1 if self.limits.alone(ticket.job) else self.limits.max_batch_size
            lane = self._lanes[ticket.key] = _Lane(ticket.job.lane is Lane.BULK, most)
        ticket.enqueued_at, ticket.queued = now, True
        lane.tickets[ticket] = None
        lane.pixels += ticket.pixels
        self.queued_jobs += 1
        self.queued_pixels += ticket.pixels

    def cancel(self, ticket: Ticket) -> bool:
        """Nobody waits any more: if the job is still queued, it leaves at once; whether it was."""
        ticket.cancelled = True
        was_queued = ticket.queued
        if was_queued:
            lane = self._lanes[ticket.key]
            self._take(lane, ticket)
            if not lane.tickets:
                del self._lanes[ticket.key]
        return was_queued

    def pick(self, now: float) -> Picked:
        """The next batch to run at `now`, or when to ask again."""
        dropped: list[Ticket] = []
        best: tuple[bool, float] | None = None
        chosen: _Lane | None = None
        wake_at: float | None = None
        for key, lane in list(self._lanes.items()):
            head = self._head(lane, now, dropped)
            if head is None:
                del self._lanes[key]
                continue
            ripe_at = head.enqueued_at + self.limits.max_queue_delay
            if now < ripe_at and not self._full(lane):
                wake_at = ripe_at if wake_at is None else min(wake_at, ripe_at)
                continue
            yields = lane.bulk and now < head.enqueued_at + self.limits.ageing
            if best is None or (yields, head.enqueued_at) < best:
                best, chosen = (yields, head.enqueued_at), lane
        if chosen is None:
            return Picked([], ReleaseReason.IDLE, dropped, wake_at)
        batch, reason = self._form(chosen, now, dropped)
        return Picked(batch, reason, dropped, None)

    def drain(self) -> list[Ticket]:
        """Take every job out, oldest first within its lane."""
        left = [ticket for lane in self._lanes.values() for ticket in lane.tickets]
        for ticket in left:
            ticket.queued = False
        self._lanes.clear()
        self.queued_jobs = self.queued_pixels = 0
        return left

    def _full(self, lane: _Lane) -> bool:
        """Counts jobs that expired behind the head too: they are met only when a batch forms."""
        return len(lane.tickets) >= lane.most or lane.pixels >= self.limits.max_batch_pixels

    def _head(self, lane: _Lane, now: float, dropped: list[Ticket]) -> Ticket | None:
        """The oldest living job of a lane; the expired before it are dropped."""
        while lane.tickets:
            head = next(iter(lane.tickets))
            if not head.dead(now):
                return head
            self._take(lane, head)
            dropped.append(head)
        return None

    def _form(
        self, lane: _Lane, now: float, dropped: list[Ticket]
    ) -> tuple[list[Ticket], ReleaseReason]:
        """Take a batch out of a lane with a living head; an emptied lane goes."""
        limits = self.limits
        batch: list[Ticket] = []
        pixels = 0
        over = False
        while len(batch) < lane.most:
            head = self._head(lane, now, dropped)
            if head is None:
                break
            over = bool(batch) and pixels + head.pixels > limits.max_batch_pixels
            if over:
                break
            self._take(lane, head)
            batch.append(head)
            pixels += head.pixels
        if not lane.tickets:
            del self._lanes[batch[0].key]
        if len(batch) == limits.max_batch_size:
            return batch, ReleaseReason.FULL
        if over or pixels >= limits.max_batch_pixels:
            return batch, ReleaseReason.BUDGET
        delay = limits.max_queue_delay
        if delay and now >= batch[0].enqueued_at + delay:
            return batch, ReleaseReason.DELAY
        return batch, ReleaseReason.IDLE

    def _take(self, lane: _Lane, ticket: Ticket) -> None:
        del lane.tickets[ticket]
        lane.pixels -= ticket.pixels
        ticket.queued = False
        self.queued_jobs -= 1
        self.queued_pixels -= ticket.pixels
