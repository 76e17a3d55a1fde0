"""Memory that large images take from decoding to encoding, over all front ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.admission.counters import Counters, Total
from app.admission.semaphore import FairSemaphore

SMALL = 26 << 20
"""Estimated bytes of an image that never waits: most filters take less for 2 megapixels without
alpha."""

SHARE = 64 << 20
"""Bytes that each other image counts at least, so that three are in work in the smallest budget.
More of them would not end sooner: each would take longer, and requests behind them would be refused
because they seem to wait too long."""

LEAST = 192 << 20
"""Bytes of each budget where there are few decoder processes."""

PER_PROCESS = 96 << 20
"""Bytes of each budget for every process beyond: filtering a photo of 6 megapixels takes less."""

TRIM_AFTER = 0.5
"""Seconds after a large image until freed memory is given back; others end meanwhile as a rule."""


def budget_for(processes: int) -> int:
    """Return the bytes of each budget of a server with `processes` decoder processes in all."""
    return max(LEAST, PER_PROCESS * processes)


class CodecMemory:
    """Two budgets in bytes, by estimate: what does not fit waits in line, until its deadline.

    An image holds the most that it takes at any time, and `SHARE` or a third of a budget at least,
    from before it is decoded until it is encoded, so no image waits for memory while it holds some.
    Images that need more than half of a budget have one of their own: they would otherwise take the
    memory of all others for seconds. One that needs more than the whole budget is let in alone.
    Lives on one event loop; front ends with the same `counters` share the budgets. `trim` gives
    freed memory back to the system; it is called on a thread after large images.
    """

    def __init__(
        self,
        limit: int,
        counters: Counters | None = None,
        trim: Callable[[], None] = lambda: None,
    ) -> None:
        counters = counters or Counters()
        self._limit = limit
        self._trim = trim
        self.trimming: asyncio.TimerHandle | None = None
        """The timer of the next call of `trim`, while one is due."""
        self._large, self._huge = (
            FairSemaphore(limit, counters, field)
            for field in (Total.LARGE_MEMORY, Total.HUGE_MEMORY)
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
        return max(1, self._limit // max(1, n_bytes))  # some work takes no bytes of its own

    @asynccontextmanager
    async def hold(self, n_bytes: int) -> AsyncIterator[None]:
        """Wait for `n_bytes`, or for the least that is counted, and hold them while the block runs;
        few bytes are not counted.
        """
        if self.is_small(n_bytes):
            yield
            return
        budget = self._huge if self.is_huge(n_bytes) else self._large
        counted = max(n_bytes, min(SHARE, self._limit // 3))
        try:
            async with budget.hold(amount=counted):
                yield
        finally:
            if self.trimming is None:
                loop = asyncio.get_running_loop()
                self.trimming = loop.call_later(TRIM_AFTER, self.trim_now)

    def trim_now(self) -> None:
        """Give freed memory back to the system, on a thread."""
        self.trimming = None
        asyncio.get_running_loop().run_in_executor(None, self._trim)
