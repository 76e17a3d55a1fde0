"""Limits for images that take much time or memory to decode or encode.

An image waits for these in one order, and lets go of none to wait for an earlier one, so that no
two images ever wait for each other: `present`, `line`, room for its pixels (which is not kept
here), `turn`, and a process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

EXPENSIVE = 1.0
"""Estimated CPU seconds from which an image is expensive, and waits for other such images."""


class Memory(Protocol):
    """The bytes that images may take; each waits for them and holds them while a block runs."""

    def decoding(self, n_bytes: int) -> AbstractAsyncContextManager[None]:
        """Hold memory of an image that is decoded here, until it is done."""

    def encoding(self, n_bytes: int) -> AbstractAsyncContextManager[None]:
        """Hold memory while an image is encoded."""


class Queues:
    """Limits of one pool of `processes` decoder processes. Lives on one event loop.

    Expensive images use at most half of the processes, so that the other half is left to the rest.
    Without `memory` no image waits for memory.
    """

    def __init__(self, processes: int, memory: Memory | None) -> None:
        self._memory = memory
        self._line = asyncio.Semaphore(max(1, processes // 2))
        self._expensive = asyncio.Semaphore(max(1, processes // 2))

    @asynccontextmanager
    async def present(self, memory: int) -> AsyncIterator[None]:
        """Wait until an image that takes this memory to decode may begin; hold it to its end."""
        async with self._memory.decoding(memory) if self._memory else nullcontext():
            yield

    @asynccontextmanager
    async def line(self, cost: float) -> AsyncIterator[None]:
        """Limit how many images of this cost wait for room for their pixels at a time."""
        async with self._line if cost >= EXPENSIVE else nullcontext():
            yield

    @asynccontextmanager
    async def turn(self, cost: float, to_encode: int = 0) -> AsyncIterator[None]:
        """Wait for `cost` seconds of CPU time and `to_encode` bytes; hold both for the block."""
        async with (
            self._expensive if cost >= EXPENSIVE else nullcontext(),
            self._memory.encoding(to_encode) if self._memory else nullcontext(),
        ):
            yield
