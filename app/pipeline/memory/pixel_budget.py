"""Bound the decoded pixels in memory over all front ends: images wait, they are not refused."""

from app.admission.counters import Counters, Total
from app.admission.semaphore import FairSemaphore, Hold


class PixelBudget:
    """Semaphore of pixels, at most `limit` at a time, in the order of arrival.

    An image larger than the limit is admitted alone. An object belongs to one event loop; front
    ends with the same `counters` share the limit.
    """

    def __init__(self, limit: int, counters: Counters | None = None) -> None:
        self._semaphore = FairSemaphore(limit, counters or Counters(), Total.PIXELS)

    def limit(self) -> int:
        """Return the largest number of pixels that may be held."""
        return self._semaphore.total

    def fitting(self, pixels: int) -> int:
        """Return how many images of `pixels` pixels fit at a time, at least one."""
        return max(1, self._semaphore.total // pixels)

    def hold(self, pixels: int) -> Hold:
        """Wait for room for `pixels` pixels, then hold it while the block runs."""
        return self._semaphore.hold(amount=pixels)
