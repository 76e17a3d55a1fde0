"""The micro-batcher: decides which jobs form a batch, and when. It has no clock, lock or thread.

Slot first, batch second: `pick` is called by a thread that already holds a free staging slot, so
while the device is busy the next batch grows by itself.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace

from models.domain.job import Job, Lane, ReleaseReason
from workers.scheduling.ticket import Ticket


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a micro-batch; after `ageing`, a waiting bulk job counts as interactive.

    Times are in seconds. A single image over `max_batch_pixels` is a batch of its own, and so is
    every job that is `alone`: it gains nothing from a larger batch, and would only wait for further
    jobs.
    """

    max_batch_size: int
    max_batch_pixels: int
    max_queue_delay: float = 0.0
    ageing: float = 1.0
    alone: Callable[[Job], bool] = lambda _job: False

    def within(self, size: int, pixels: int, delay: float) -> "BatchLimits":
        """Return new limits, none above these; a size of 0 means the present size."""
        return replace(
            self,
            max_batch_size=min(size or self.max_batch_size, self.max_batch_size),
            max_batch_pixels=min(pixels, self.max_batch_pixels),
            max_queue_delay=delay,
        )


@dataclass(frozen=True, slots=True)
class Picked:
    """The result of `pick`: a batch (maybe empty), the expired jobs, and when to call it again.

    `wake_at` is None when nothing waits, or a batch was found.
    """

    batch: list[Ticket]
    reason: ReleaseReason
    dropped: list[Ticket]
    wake_at: float | None


ALL = frozenset(Lane)
"""Every kind of lane."""

_NOTHING = Picked([], ReleaseReason.IDLE, [], None)


class _Lane:
    """Jobs of the same batch key and priority, oldest first; `single`: each is a batch of its own.

    It is ordered and linked, so that a cancelled job leaves in O(1) and releases its image.
    """

    __slots__ = ("kind", "pixels", "single", "tickets")

    def __init__(self, kind: Lane, single: bool) -> None:
        self.kind = kind
        self.single = single
        self.pixels = 0
        self.tickets: OrderedDict[Ticket, None] = OrderedDict()


class MicroBatcher:
    """Lanes of waiting jobs; the oldest head of the most urgent kind goes first.

    A job costs O(1) over its life, however it ends; `pick` looks once at every lane's head.
    `limits` may be replaced at any time by the thread that calls `pick`, or under its lock. Jobs
    whose ticket is `alone` (a worker died while it held them) get the whole device, each in turn.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self.suspects = 0
        self._lanes: dict[tuple[Hashable, Lane, bool], _Lane] = {}
        self.queued_jobs = 0

    def add(self, ticket: Ticket, now: float) -> None:
        """Let a job wait from `now` on."""
        lane = self._lanes.get(ticket.key)
        if lane is None:
            single = ticket.alone or self.limits.alone(ticket.job)
            lane = self._lanes[ticket.key] = _Lane(ticket.job.lane, single)
        ticket.enqueued_at, ticket.queued = now, True
        lane.tickets[ticket] = None
        lane.pixels += ticket.pixels
        self.suspects += ticket.alone
        self.queued_jobs += 1

    def cancel(self, ticket: Ticket) -> bool:
        """Remove a cancelled job if it is still queued; return whether it was."""
        ticket.cancelled = True
        was_queued = ticket.queued
        if was_queued:
            lane = self._lanes[ticket.key]
            self._take(lane, ticket)
            if not lane.tickets:
                del self._lanes[ticket.key]
        return was_queued

    def pick(self, now: float, idle: bool = True, kinds: Collection[Lane] = ALL) -> Picked:
        """Return the next batch to run at `now`, or when to ask again; `idle`: the device has no
        batch. The batch is of any of `kinds`; a suspect is picked by threads that take interactive
        jobs.
        """
        if self.suspects:
            return self._pick_suspect(now, idle) if Lane.INTERACTIVE in kinds else _NOTHING
        dropped: list[Ticket] = []
        best: tuple[bool, float] | None = None
        chosen: _Lane | None = None
        wake_at: float | None = None
        for key, lane in list(self._lanes.items()):
            if lane.kind not in kinds:
                continue
            head = self._head(lane, now, dropped)
            if head is None:
                del self._lanes[key]
                continue
            ripe_at = head.enqueued_at + self.limits.max_queue_delay
            if now < ripe_at and not self._full(lane):
                wake_at = ripe_at if wake_at is None else min(wake_at, ripe_at)
                continue
            # Tuples compare from the left: bulk lanes come last until they have aged; among equals
            # the oldest head wins.
            yields = (
                lane.kind is not Lane.INTERACTIVE and now < head.enqueued_at + self.limits.ageing
            )
            if best is None or (yields, head.enqueued_at) < best:
                best, chosen = (yields, head.enqueued_at), lane
        if chosen is None:
            return Picked([], ReleaseReason.IDLE, dropped, wake_at)
        batch, reason = self._form(chosen, now, dropped)
        return Picked(batch, reason, dropped, None)

    def _pick_suspect(self, now: float, idle: bool) -> Picked:
        """Return the oldest suspect as soon as the device is idle: it runs alone."""
        dropped: list[Ticket] = []
        for key, lane in [each for each in self._lanes.items() if each[0][2]]:
            head = self._head(lane, now, dropped)
            if head is not None and idle:
                self._take(lane, head)
            if not lane.tickets:
                del self._lanes[key]
            # While the device is busy nothing at all is picked, from other lanes neither: if the
            # suspect ends the worker, no other job may be on the device.
            if head is not None:
                return Picked([head] if idle else [], ReleaseReason.IDLE, dropped, None)
        return Picked([], ReleaseReason.IDLE, dropped, None)

    def drain(self) -> list[Ticket]:
        """Take every job out, oldest first within its lane."""
        left = [ticket for lane in self._lanes.values() for ticket in lane.tickets]
        for ticket in left:
            ticket.queued = False
        self._lanes.clear()
        self.queued_jobs = self.suspects = 0
        return left

    def _most(self, lane: _Lane) -> int:
        """Return how many jobs of this lane may share a batch."""
        return 1 if lane.single else self.limits.max_batch_size

    def _full(self, lane: _Lane) -> bool:
        """Return whether a lane fills a batch, counting jobs that expired after its head."""
        return len(lane.tickets) >= self._most(lane) or lane.pixels >= self.limits.max_batch_pixels

    def _head(self, lane: _Lane, now: float, dropped: list[Ticket]) -> Ticket | None:
        """Return the oldest job of a lane that is not over; drop the jobs before it."""
        while lane.tickets:
            head = next(iter(lane.tickets))
            if not head.is_over(now):
                return head
            self._take(lane, head)
            dropped.append(head)
        return None

    def _form(
        self, lane: _Lane, now: float, dropped: list[Ticket]
    ) -> tuple[list[Ticket], ReleaseReason]:
        """Take a batch out of a lane whose head is not over; remove a lane that is empty then."""
        limits, most = self.limits, self._most(lane)
        batch: list[Ticket] = []
        pixels = 0
        over = False
        while len(batch) < most:
            head = self._head(lane, now, dropped)
            if head is None:
                break
            # The first job is always taken: an image over the budget forms a batch alone, or it
            # would wait without end.
            over = bool(batch) and pixels + head.pixels > limits.max_batch_pixels
            if over:
                break
            self._take(lane, head)
            batch.append(head)
            pixels += head.pixels
        if not lane.tickets:
            del self._lanes[batch[0].key]
        if len(batch) == most:
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
        self.suspects -= ticket.alone
        self.queued_jobs -= 1
