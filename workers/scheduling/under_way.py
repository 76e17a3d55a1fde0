"""The batches that a device has been given, and the halves of those that failed.

It belongs to one worker, which calls everything here with its lock held.
"""

from collections import deque
from collections.abc import Collection

from models.domain.job import Lane, ReleaseReason
from workers.scheduling.batch import Batch
from workers.scheduling.batcher import ALL, MicroBatcher, Picked
from workers.scheduling.ticket import Ticket


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
