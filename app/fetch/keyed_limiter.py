"""Keyed semaphore over all front ends: limits concurrency in total, for each key, and for each
client.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

from app.admission.counters import ByKey, Counters, Mark, Total
from app.admission.fair_queue import FairQueue, Lack
from app.admission.gate import POLL, TotalPool

PART = 3
"""A client holds at most `PART` times as many turns as stay free: 48 of 64 if it is alone."""

UNSURE = 3
"""The most that a client's count may be, with the turn that it asks for, if it holds none in this
front end and is to get it as its first. Counts are too high where keys share cells: of 65 clients
with a turn each, one seemed to hold two in 17 % of 400 servers, and would wait as long as others
want turns."""

CELLS_KEPT = 4096
"""Hosts and clients whose cells of the counters are kept: finding them takes 1 µs."""


class KeyedLimiter:
    """Semaphore with at most `total` holders and at most `per_key` of one key, in an order that is
    fair to clients (`FairQueue`).

    A turn counts for its key and its client at once, so a request that waits holds neither. A
    client leaves turns to others (`PART`), so many slow holders of one client do not block other
    clients. Front ends with the same `counters` share all limits: what is released goes to the one
    that looks first, which each does every `POLL` seconds. Of all turns, one is left to a client of
    another front end that holds nothing and has waited for `PATIENCE` (`gate.py`).
    """

    def __init__(self, total: int, per_key: int, counters: Counters | None = None) -> None:
        self._counters = counters or Counters()
        self._pool = TotalPool(self._counters, Total.FETCHES, Mark.FETCHES_SINCE, total)
        self._per_key = per_key
        self._cells = lru_cache(CELLS_KEPT)(self._counters.key)
        self._held = Counter[str]()
        self._queue = FairQueue(
            self._attempt, self._give_back, self._held.__getitem__, self._look_again
        )
        self._starving = 0  # since when a client that holds nothing lacks no more than a turn
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of clients that hold a turn or wait for one."""
        return len(self._held.keys() | self._queue.clients)

    @property
    def total(self) -> int:
        """Return how many holders there may be."""
        return self._pool.limit

    def set_limits(self, total: int, per_key: int) -> None:
        """Change the limits from now on; turns that are taken already are kept."""
        self._pool.limit, self._per_key = total, per_key
        self._wake()

    @asynccontextmanager
    async def take(self, key: str, client: str = "") -> AsyncIterator[None]:
        """Hold a turn for `key` while the block runs, as one of `client` unless that is empty."""
        if self._queue and self._counters.shared:  # other front ends may have released turns
            self._wake()
        await self._queue.take(client, key)
        try:
            yield
        finally:
            self._give_back(client, key)
            if not self._counters.shared:  # else front ends compete for it when they look again
                self._wake()

    def _attempt(self, client: str, key: str, since: int) -> Lack | None:
        """Take a turn if it leaves enough to others; the first turn of a client always does.

        All counts are raised before they are read, because other front ends do the same.
        """
        counters = self._counters
        of_key, of_client = self._cells(f"host {key}"), self._cells(f"client {client}")
        if not counters.take_for(of_key, ByKey.FETCHES, 1, self._per_key):
            return Lack.KEY
        counters.add_for(of_client, ByKey.FETCHES, 1)
        held = counters.of(of_client, ByKey.FETCHES)
        first = not client or (not self._held[client] and held <= UNSURE)
        if not self._pool.take(1, since):
            lack = Lack.ALL if first else Lack.CLIENT
        elif first or held <= PART * (self.total - counters.total(Total.FETCHES)):
            self._held[client] += 1
            return None
        else:
            self._pool.give_back(1)
            lack = Lack.CLIENT
        counters.add_for(of_client, ByKey.FETCHES, -1)
        counters.add_for(of_key, ByKey.FETCHES, -1)
        if lack is Lack.ALL:
            self._starving = self._starving or since
        return lack

    def _give_back(self, client: str, key: str) -> None:
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        self._counters.add_for(self._cells(f"client {client}"), ByKey.FETCHES, -1)
        self._counters.add_for(self._cells(f"host {key}"), ByKey.FETCHES, -1)
        self._pool.give_back(1)

    def _wake(self) -> None:
        """Let requests that wait continue, in turn, while they fit."""
        self._starving = 0
        self._queue.wake()

    def _look_again(self) -> None:
        """Tell other front ends since when a client without a turn waits, and check again soon."""
        if not self._counters.shared:
            return
        self._pool.wait_since(self._starving if self._queue else 0)
        if self._queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        self._wake()
