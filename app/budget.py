"""Decoded pixels in memory: a weighted semaphore. Who does not fit waits; nobody is refused."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class PixelBudget:
    """At most `limit` pixels are held at a time; first come, first served.

    A single image larger than the limit is let in alone. Lives on one event loop.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def fitting(self, pixels: int) -> int:
        """How many images of so many pixels fit at a time; at least one."""
        return max(1, self._limit // pixels)

    @asynccontextmanager
    async def hold(self, pixels: int) -> AsyncIterator[None]:
        """Wait for room, then hold it while the block runs."""
        pixels = min(pixels, self._limit)
        if self._waiting or self._held + pixels > self._limit:
            await self._wait(pixels)
        else:
            self._held += pixels
        try:
            yield
        finally:
            self._held -= pixels
            self._wake()

    async def _wait(self, pixels: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((pixels, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._held -= pixels
            self._wake()
            raise

    def _wake(self) -> None:
        """Let in whoever fits, in order; who was cancelled while waiting takes no room."""
        while self._waiting:
            pixels, turn = self._waiting[0]
            if not turn.cancelled():
                if self._held + pixels > self._limit:
                    return
                self._held += pixels
                turn.set_result(None)
            self._waiting.popleft()
