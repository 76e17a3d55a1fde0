"""Measure how much admitted work the server completes in a second while it is busy."""

import time
from collections.abc import Callable

from app.admission.counters import Counters
from app.admission.fields import Total

WINDOW = 0.25
"""Seconds that one measurement lasts at least."""

NEWEST = 0.3
"""Weight of the newest measurement: after a second the old capacity has little influence."""

LEAST = 0.2
"""Lowest capacity. Work is measured in seconds of the device, so a device that computes completes
about 1 in a second. A lower result means that it stood still, for instance without a worker."""

MICRO = 1_000_000


class Capacity:
    """Seconds of estimated work that all front ends together complete in a second.

    A measurement counts fully only if at least `busy_images` were in flight during all of it,
    because a server that waits for clients or origins is slower than it could be. Of the other
    measurements only those count that are higher than the last one of a busy server.
    """

    def __init__(
        self,
        counters: Counters,
        busy_images: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._busy_images = busy_images
        self._clock = clock
        self.per_second = 0.0
        """Seconds of work completed in a second; 0 if it has not been measured yet."""
        self._busy = False
        self._start(clock())

    def look(self) -> None:
        """Measure; to be called when work begins and when it has been completed."""
        total = self._counters.total
        self._busy = self._busy and self._is_busy()
        now = self._clock()
        seconds = now - self._since
        if seconds < WINDOW:
            return
        done = total(Total.DONE) - self._done
        if done > 0:  # it is negative after the column of a front end was cleared
            measured = done / MICRO / seconds
            known = self.per_second
            if self._busy:
                self.per_second = known + (measured - known) * NEWEST if known else measured
                self.per_second = max(LEAST, self.per_second)
            elif known:
                self.per_second = max(known, measured)
        self._start(now)

    def wait(self, microseconds: float) -> float:
        """Return the seconds that this work takes; 0 as long as nothing was measured."""
        return microseconds / MICRO / self.per_second if self.per_second else 0.0

    def _start(self, now: float) -> None:
        self._since = now
        self._done = self._counters.total(Total.DONE)
        self._busy = self._is_busy()

    def _is_busy(self) -> bool:
        total = self._counters.total
        return total(Total.IMAGES) - total(Total.AWAITED) >= self._busy_images
