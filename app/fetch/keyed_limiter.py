"""Keyed semaphore over all front ends: limits concurrency in total, for each key, and for each
client.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from app.admission.counts.counters import Counters, Key
from app.admission.counts.fields import ByKey, Mark, Total
from app.admission.counts.gate import Gate, KeyPool, TotalPool

PART = 3
"""A client holds at most `PART` times as many turns as stay free: 48 of 64 if it is alone."""


class SharePool(KeyPool):
    """Turns that one client holds of those of `total`, where they are counted too."""

    def __init__(self, counters: Counters, key: Key, total: TotalPool) -> None:
        super().__init__(counters, key, ByKey.FETCHES, 1)
        self._total = total
        self.shared = self.hands_over = True  # turns of other clients make room too: look for them

    def take(self, amount: int, _since: int) -> bool:
        """Take `amount` if it leaves enough to others; the first turn of a client always does.

        Both are counted at once, because a turn that is given to a waiter is used only later.
        """
        counters, limit = self._counters, self._total.limit
        counters.add_for(self._key, self._field, amount)
        counters.add(Total.FETCHES, amount)
        held, free = counters.of(self._key, self._field), limit - counters.total(Total.FETCHES)
        if free >= 0 and (held <= amount or held <= PART * free):
            return True
        self.give_back(amount)
        return False

    def give_back(self, amount: int) -> None:
        """Count less, of the client and of all."""
        super().give_back(amount)
        self._counters.add(Total.FETCHES, -amount)


@dataclass(slots=True)
class _Queue:
    """A gate with the number of its holders and waiters."""

    gate: Gate
    users: int = 0


class _Gates:
    """Gates by key; one is forgotten with its last user: memory follows the load."""

    def __init__(self, make: Callable[[str], Gate]) -> None:
        self._make = make
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Gate]:
        return iter([queue.gate for queue in self._queues.values()])

    @contextmanager
    def used(self, key: str) -> Iterator[Gate]:
        """Return the gate of a key, which stays while the block runs."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(self._make(key))
        queue.users += 1
        try:
            yield queue.gate
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[key]


class KeyedLimiter:
    """Semaphore with at most `total` holders and at most `per_key` of one key, first come, first
    served.

    A key's own turn is waited for first, so many waiters of one key do not block other keys. A
    client leaves turns to others (`SharePool`), so many slow holders of one client do not block
    other clients. Front ends with the same `counters` share all limits.
    """

    def __init__(self, total: int, per_key: int, counters: Counters | None = None) -> None:
        self._counters = counters or Counters()
        pool = TotalPool(self._counters, Total.FETCHES, Mark.FETCHES_SINCE, total)
        self._total = Gate(pool)
        self._per_key = per_key
        self._keys = _Gates(self._gate_of_key)
        self._clients = _Gates(
            lambda name: Gate(SharePool(self._counters, self._counters.key(name), pool))
        )

    def __len__(self) -> int:
        """Return the number of keys and clients that are in use."""
        return len(self._keys) + len(self._clients)

    @property
    def total(self) -> int:
        """Return how many holders there may be."""
        return self._total.pool.limit

    def set_limits(self, total: int, per_key: int) -> None:
        """Change the limits from now on; turns that are taken already are kept."""
        self._per_key = per_key
        for gate in self._keys:
            gate.pool.limit = per_key
            gate.wake()
        self._total.pool.limit = total
        self._total.wake()

    @asynccontextmanager
    async def take(self, key: str, client: str = "") -> AsyncIterator[None]:
        """Hold a turn for `key` while the block runs, as one of `client` unless that is empty."""
        with self._keys.used(f"host {key}") as gate:
            if not client:
                async with gate.hold(1), self._total.hold(1):
                    yield
                return
            with self._clients.used(f"client {client}") as share:
                await _take_both(gate, share)
                try:
                    yield
                finally:
                    gate.give_back(1)
                    share.give_back(1)
                    self._total.wake()

    def _gate_of_key(self, name: str) -> Gate:
        cells = self._counters.key(name)
        return Gate(KeyPool(self._counters, cells, ByKey.FETCHES, self._per_key))


async def _take_both(first: Gate, second: Gate) -> None:
    """Take a turn of both gates; while one is waited for, none is held of the other.

    A client that waits for its share would otherwise hold all turns of a host that others want.
    """
    while True:
        await first.take(1)
        if second.take_now(1):
            return
        first.give_back(1)
        first, second = second, first
