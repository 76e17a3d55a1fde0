"""Keyed semaphore over all front ends: limits concurrency in total and for each key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.admission.counts.counters import Counters
from app.admission.counts.fields import ByKey, Mark, Total
from app.admission.counts.gate import Gate, KeyPool, TotalPool


@dataclass(slots=True)
class _Queue:
    """The gate of one key, with the number of its holders and waiters."""

    gate: Gate
    users: int = 0


class KeyedLimiter:
    """Semaphore with at most `total` holders and at most `per_key` of one key, first come, first
    served.

    A key's own turn is waited for first, so many waiters of one key do not block other keys. A key
    is forgotten with its last user: memory follows the present load, not the past. Front ends with
    the same `counters` share both limits.
    """

    def __init__(self, total: int, per_key: int, counters: Counters | None = None) -> None:
        self._counters = counters or Counters()
        pool = TotalPool(self._counters, Total.FETCHES, Mark.FETCHES_SINCE, total)
        self._total = Gate(pool)
        self._per_key = per_key
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        """Return the number of keys that are in use."""
        return len(self._queues)

    @property
    def total(self) -> int:
        """Return how many holders there may be."""
        return self._total.pool.limit

    def set_limits(self, total: int, per_key: int) -> None:
        """Change the limits from now on; turns that are taken already are kept."""
        self._per_key = per_key
        gates = [queue.gate for queue in self._queues.values()]
        for gate in gates:
            gate.pool.limit = per_key
            gate.wake()
        self._total.pool.limit = total
        self._total.wake()

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        """Hold a turn for `key` while the block runs."""
        queue = self._queues.get(key)
        if queue is None:
            cells = self._counters.key(f"host {key}")
            pool = KeyPool(self._counters, cells, ByKey.FETCHES, self._per_key)
            queue = self._queues[key] = _Queue(Gate(pool))
        queue.users += 1
        try:
            async with queue.gate.hold(1), self._total.hold(1):
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[key]
