"""Memory that large images take from decoding to encoding, over all front ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.admission.counters import Counters
from app.admission.fields import Mark, Total
from app.admission.gate import Gate, TotalPool

SMALL = 32 << 20
"""Estimated bytes of an image that never waits: filtering 2 megapixels takes less."""

LEAST = 256 << 20
"""Bytes of each budget, where the settings say nothing and there are few decoder processes."""

PER_PROCESS = 128 << 20
"""Bytes of each budget for every process beyond: filtering a photo of 8 megapixels takes less."""


def budget_for(setting: int, processes: int) -> int:
    """Return the bytes of each budget of a server with `processes` decoder processes in all."""
    return setting or max(LEAST, PER_PROCESS * processes)


class CodecMemory:
    """Two budgets in bytes, by estimate: what does not fit waits in line, until its deadline.

    An image holds the most that it takes at any time, from before it is decoded until it is
    encoded, so that no image waits for memory while it holds some. Images that need more than half
    of a budget have one of their own: they would otherwise take the memory of all others for
    seconds. One that needs more than the whole budget is let in alone. Lives on one event loop;
    front ends with the same `counters` share the budgets.
    """

    def __init__(self, limit: int, counters: Counters | None = None) -> None:
        counters = counters or Counters()
        self._limit = limit
        self._large, self._huge = (
            Gate(TotalPool(counters, total, mark, limit))
            for total, mark in (
                (Total.LARGE_MEMORY, Mark.LARGE_MEMORY_SINCE),
                (Total.HUGE_MEMORY, Mark.HUGE_MEMORY_SINCE),
            )
        )

    def limit(self) -> int:
        """Return the bytes of each budget."""
        return self._limit

    def is_small(self, n_bytes: int) -> bool:
        """Return whether an image of `n_bytes` bytes is not counted and never waits."""
        return n_bytes <= SMALL

    def is_huge(self, n_bytes: int) -> bool:
        """Return whether an image needs so much that it has a budget of its own."""
        return n_bytes > max(SMALL, self._limit // 2)

    def at_once(self, n_bytes: int) -> int:
        """Return how many pieces of work of `n_bytes` bytes fit at a time, at least one."""
        return max(1, self._limit // n_bytes)

    @asynccontextmanager
    async def hold(self, n_bytes: int) -> AsyncIterator[None]:
        """Wait for `n_bytes`, then hold them while the block runs; few bytes are not counted."""
        if self.is_small(n_bytes):
            yield
            return
        gate = self._huge if self.is_huge(n_bytes) else self._large
        async with gate.hold(n_bytes):
            yield
