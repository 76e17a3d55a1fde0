"""Turns at a shared thing: so many in all, and so many for each key. Knows not what for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Queue:
    """The turns of one key, and how many hold one or wait."""

    turns: asyncio.Semaphore
    users: int = 0


class Turns:
    """At most `total` holders, at most `per_key` of one key, each in the order of asking.

    A key's own turn is waited for first, so a crowd at one key keeps nobody else out. A key is
    forgotten with its last user: memory follows the present load, not the past.
    """

    def __init__(self, total: int, per_key: int) -> None:
        self._total = asyncio.Semaphore(total)
        self._per_key = per_key
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        """Keys that are in use."""
        return len(self._queues)

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        """Hold a turn for `key` while the block runs."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(asyncio.Semaphore(self._per_key))
        queue.users += 1
        try:
            async with queue.turns, self._total:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[key]
