"""Decoded pixels in memory, over all front ends. What does not fit waits; it is never refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.admission.counters import Counters
from app.admission.fields import Mark, Total
from app.admission.gate import Gate, TotalPool


class PixelBudget:
    """At most `limit` pixels are held at a time; first come, first served.

    A single image larger than the limit is let in alone. Lives on one event loop; front ends with
    the same `counters` share the limit.
    """

    def __init__(self, limit: int, counters: Counters | None = None) -> None:
        self._pool = TotalPool(counters or Counters(), Total.PIXELS, Mark.PIXELS_SINCE, limit)
        self._gate = Gate(self._pool)

    def limit(self) -> int:
        """Pixels that may be held."""
        return self._pool.limit

    def set_limit(self, limit: int) -> None:
        """From now on; what is held already stays."""
        self._pool.limit = limit
        self._gate.wake()

    def fitting(self, pixels: int) -> int:
        """How many images of so many pixels fit at a time; at least one."""
        return max(1, self._pool.limit // pixels)

    @asynccontextmanager
    async def hold(self, pixels: int) -> AsyncIterator[None]:
        """Wait for room, then hold it while the block runs."""
        async with self._gate.hold(pixels):
            yield
