"""Measure how much admitted work the server completes in a second while it is busy."""

import math
import time
from collections.abc import Callable, Hashable

from app.admission.counts.counters import Counters
from app.admission.counts.fields import Total

WINDOW = 0.25
"""Seconds that one measurement lasts at least."""

LONGEST = 30.0
"""Seconds after which a measurement ends with the next image that is completed. Until then it lasts
at least twice as long as the oldest work in progress, because work counts when it is completed: the
server would seem slow while long images are computed, and fast when they end."""

MEMORY = 0.7
"""Seconds after which a measurement has 1/e of its influence left. A measurement weighs by its
length, or short ones, in which much happened to end, would weigh most."""

LEAST = 0.2
"""Lowest capacity. Work is measured in seconds of the device, so a device that computes completes
about 1 in a second. A lower result means that it stood still, for instance without a worker."""

MICRO = 1_000_000


class Capacity:
    """Seconds of estimated work that all front ends together complete in a second.

    A measurement counts fully only if at least `busy_images` were in flight during all of it,
    because a server that waits for clients or origins is slower than it could be. Images that only
    wait for an origin, or for their client to read the answer, are not counted. Of the other
    measurements only those count that are higher than the last one of a busy server. Each ends with
    an image that is completed, since the work of an image counts when it is completed. Time without
    a worker, which is positive `absence()`, does not count.
    """

    def __init__(
        self,
        counters: Counters,
        busy_images: int,
        clock: Callable[[], float] = time.monotonic,
        absence: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._counters = counters
        self.busy_images = busy_images
        self._clock = clock
        self._absence = absence
        self.per_second = 0.0
        """Seconds of work completed in a second; 0 if it has not been measured yet."""
        self._begun: dict[Hashable, float] = {}
        """When work in progress began in this front end, oldest first."""
        self._busy = False
        self._start(clock())

    def begin(self, work: Hashable) -> None:
        """Note that work on an image begins."""
        self._begun[work] = self._clock()

    def end(self, work: Hashable) -> None:
        """Note that it ends, whether it was completed or not."""
        del self._begun[work]

    def look(self, completed: int = 0) -> None:
        """Measure; to be called when work begins, and when `completed` images were completed."""
        total = self._counters.total
        self._busy = self._busy and self._is_busy()
        self._completed += completed
        now = self._clock()
        if self._absence():
            self._start(now)
        seconds = now - self._since
        if seconds < self._least(now) or not self._completed:
            return
        done = total(Total.DONE) - self._done
        if done > 0:  # it is negative after the column of a front end was cleared
            measured = done / MICRO / seconds
            known = self.per_second
            weight = 1.0 - math.exp(-seconds / MEMORY) if known else 1.0
            if self._busy:
                self.per_second = max(LEAST, known + (measured - known) * weight)
            elif known:
                self.per_second = known + max(0.0, measured - known) * weight
        self._start(now)

    def wait(self, microseconds: float) -> float:
        """Return the seconds that this work takes; 0 as long as nothing was measured."""
        return microseconds / MICRO / self.per_second if self.per_second else 0.0

    def _least(self, now: float) -> float:
        """Return the seconds that this measurement lasts at least; the first one ends earlier."""
        oldest = next(iter(self._begun.values()), now)
        return max(WINDOW, min(LONGEST, (now - oldest) * (2 if self.per_second else 1)))

    def _start(self, now: float) -> None:
        self._since = now
        self._completed = 0
        self._done = self._counters.total(Total.DONE)
        self._busy = self._is_busy()

    def _is_busy(self) -> bool:
        total = self._counters.total
        waiting = total(Total.AWAITED) + total(Total.ANSWERED)
        return total(Total.IMAGES) - waiting >= self.busy_images
