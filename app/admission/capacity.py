"""How much admitted work the server finishes in a second, measured while it is busy."""

import time
from collections.abc import Callable

from app.admission.counters import Counters
from app.admission.fields import Total

WINDOW = 0.25
"""Seconds of one measurement, at least."""

NEWEST = 0.3
"""Weight of the newest measurement: after a second the old capacity has nearly gone."""

LEAST = 0.2
"""Work is measured in seconds of the device, so a device that works does about 1 a second; less
was measured while it stood still, because a worker was lost for instance, and says nothing."""

MICRO = 1_000_000


class Capacity:
    """Seconds of estimated work finished in a second, over all front ends.

    A window counts in full only if at least `busy_images` were in flight all the time, because a
    server that waits for clients is slower than it could be; of the others a higher result counts,
    once there is one of a busy server.
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
        """0: not measured yet."""
        self._busy = False
        self._start(clock())

    def look(self) -> None:
        """Call when work was finished and when it begins."""
        total = self._counters.total
        self._busy = self._busy and total(Total.IMAGES) >= self._busy_images
        now = self._clock()
        seconds = now - self._since
        if seconds < WINDOW:
            return
        done = total(Total.DONE) - self._done
        if done > 0:  # less than 0 after a front end's column was cleared
            measured = done / MICRO / seconds
            known = self.per_second
            if self._busy:
                self.per_second = known + (measured - known) * NEWEST if known else measured
                self.per_second = max(LEAST, self.per_second)
            elif known:
                self.per_second = max(known, measured)
        self._start(now)

    def wait(self, microseconds: float) -> float:
        """Seconds until so much work is done; 0 as long as nothing was measured."""
        return microseconds / MICRO / self.per_second if self.per_second else 0.0

    def _start(self, now: float) -> None:
        self._since = now
        self._done = self._counters.total(Total.DONE)
        self._busy = self._counters.total(Total.IMAGES) >= self._busy_images
