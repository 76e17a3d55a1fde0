"""Measure how fast a worker serves while it is busy. Callers pass the moments; there is no
clock.
"""

NEWEST = 0.1
"""Weight of the newest batch: about the last ten batches count."""


class Throughput:
    """Jobs per second, exponentially weighted; 0 before the first batch.

    `decoding` is the share of the time, 0…1, in which JPEGs were being decoded.
    """

    def __init__(self) -> None:
        self.per_second = self.decoding = 0.0
        self._last_done = 0.0

    def add(self, jobs: int, launched_at: float, done_at: float, decode: float = 0.0) -> float:
        """Add a finished batch; return its seconds, from the end of the batch before, or from its
        launch on an idle device.

        `decode` seconds of that, and perhaps of the time before, went into decoding.
        """
        busy = done_at - max(self._last_done, launched_at)
        self._last_done = done_at
        if busy > 0:
            share = NEWEST if self.per_second else 1.0
            self.per_second += (jobs / busy - self.per_second) * share
            self.decoding += (min(decode / busy, 1.0) - self.decoding) * share
        return max(busy, 0.0)
