"""Claim chunks before they are needed, so that no image waits for the transaction of a claim."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from app.jobs.store.values import Claim

MOST = 8
"""Chunks that one transaction claims at most: other processes must find work at the end of a
job."""

SHORT = 0.5
"""Seconds: chunks that were all begun within this time are followed by twice as many."""


class ClaimsAhead:
    """The chunks of one job that this process has claimed and not begun.

    `claim` takes at most the given number of chunks; an empty list means that none is free. While
    the last claimed chunk is begun, the next ones are being claimed. The faster chunks are begun,
    the more are claimed at a time: cheap images would else take more time to claim than to compute.
    """

    def __init__(
        self,
        claim: Callable[[int], Awaitable[list[Claim]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claim = claim
        self._clock = clock
        self._ready = deque[Claim]()
        self._coming: asyncio.Task[list[Claim]] | None = None
        self._number = 1
        self._taken_at: float | None = None

    async def next(self) -> Claim | None:
        """Return the next chunk, or None if none is free."""
        if not self._ready:
            self._coming = self._coming or self._claimed()
            found = await asyncio.shield(self._coming)
            self._coming = None
            self._ready.extend(found)
            if not found:
                return None
        first = self._ready.popleft()
        if not self._ready:
            self._coming = self._claimed()
        return first

    async def close(self, give_back: Callable[[Sequence[Claim]], None]) -> None:
        """Call `give_back` with the chunks that were not begun, and wait for a claim under way.

        Its chunks are given back even if this is cancelled before it has ended.
        """
        give_back([*self._ready])
        self._ready.clear()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.add_done_callback(lambda ended: give_back(_chunks_of(ended)))
            await asyncio.wait([coming])

    def _claimed(self) -> "asyncio.Task[list[Claim]]":
        """Begin to claim the next chunks."""
        now = self._clock()
        if self._taken_at is not None:
            quick = now - self._taken_at < SHORT
            self._number = min(2 * self._number, MOST) if quick else max(1, self._number // 2)
        self._taken_at = now

        async def claim() -> list[Claim]:
            return await self._claim(self._number)

        return asyncio.create_task(claim())


def _chunks_of(ended: "asyncio.Task[list[Claim]]") -> list[Claim]:
    """Return the chunks that were claimed; none if claiming failed."""
    return [] if ended.cancelled() or ended.exception() is not None else ended.result()
