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

    def is_small(self, n_bytes: int) -> bool:
        """Return whether an image of `n_bytes` bytes never waits."""

    def at_once(self, n_bytes: int) -> int:
        """Return how many pieces of work of `n_bytes` bytes fit at a time, at least one."""

    def hold(self, n_bytes: int) -> AbstractAsyncContextManager[None]:
        """Wait for the memory of an image, and hold it until the image is done."""


class Queues:
    """Limits of one pool of `processes` decoder processes. Lives on one event loop.

    Expensive images use at most half of the processes, so that the other half is left to the rest.
    Without `memory` no image waits for memory.
    """

    def __init__(self, processes: int, memory: Memory | None) -> None:
        self._memory = memory
        self._line = asyncio.Semaphore(max(1, processes // 2))
        self._expensive = asyncio.Semaphore(max(1, processes // 2))

    def is_small(self, memory: int) -> bool:
        """Return whether an image that takes this memory never waits for it."""
        return self._memory is None or self._memory.is_small(memory)

    def at_once(self, memory: int, most: int) -> int:
        """Return how many parts of an image that take this memory fit at a time, up to `most`."""
        return most if self._memory is None else min(most, self._memory.at_once(memory))

    @asynccontextmanager
    async def present(self, memory: int) -> AsyncIterator[None]:
        """Wait until an image that takes this memory at most may begin; hold it to its end."""
        async with self._memory.hold(memory) if self._memory else nullcontext():
            yield

    @asynccontextmanager
    async def line(self, cost: float) -> AsyncIterator[None]:
        """Limit how many images of this cost wait for room for their pixels at a time."""
        async with self._line if cost >= EXPENSIVE else nullcontext():
            yield

    @asynccontextmanager
    async def turn(self, cost: float) -> AsyncIterator[None]:
        """Wait until an image may use `cost` seconds of CPU time, while the block runs."""
        async with self._expensive if cost >= EXPENSIVE else nullcontext():
            yield
