"""The counting semaphore for all that clients share, in one front end or over all of them.

Between front ends, what was given back goes to the first one that asks: those with waiters look
every `POLL` seconds. When a request has waited for `PATIENCE` although its client may have what it
asks for, newcomers at any front end get nothing, so small amounts do not starve large ones.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.admission.counters import ByKey, Counters, Total
from models.domain.fair_queue import FairQueue, Lack

PART = 3
"""A client holds at most `PART` times as much as stays free: 48 of 64 if it is alone. So it takes
several clients with much each before one without anything finds nothing (dynamic threshold:
Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262)."""

POLL = 0.005
"""Seconds between two looks of a queue for what other front ends have given back."""

PATIENCE, FRESH = 100_000_000, 50_000_000
"""Nanoseconds of waiting after which a request marks that newcomers have to wait too, and for which
front ends heed the mark."""

Asked = tuple[str, str, int]
"""The client of a request, its key, and its amount."""


class FairSemaphore:
    """Semaphore of `total` units, which clients wait for in a `FairQueue`; for one event loop.

    A client holds at most `PART` times as many as stay free, and what it asks for first in any
    case. Requests without a client have no such bound, and are served in their order. An amount
    above the total is held alone. With `counters` all front ends share the total, as `field`.

    With `per_key`, which is for fetches, at most so many units have the same key, and both the key
    and the part of a client are counted over all front ends.
    """

    def __init__(
        self,
        total: int,
        counters: Counters | None = None,
        field: Total = Total.FETCHES,
        per_key: int = 0,
    ) -> None:
        self.total = total
        self._per_key = per_key
        self._counters = Counters() if counters is None else counters
        self._field = field
        self._held = Counter[str]()
        self._starves = False
        self._queue = FairQueue(self._attempt, self._count_back, POLL)

    @property
    def used(self) -> int:
        """Return how many units are taken, over all front ends that share them."""
        return self._counters.total(self._field)

    def set_total(self, total: int, per_key: int = 0) -> None:
        """Change the number of units from now on; those that are taken already are kept."""
        self.total, self._per_key = total, per_key or self._per_key
        self._queue.wake()

    @asynccontextmanager
    async def hold(self, client: str = "", key: str = "", amount: int = 1) -> AsyncIterator[None]:
        """Wait for units, and hold them while the block runs."""
        asked = await self.take(client, key, amount)
        try:
            yield
        finally:
            self.give_back(*asked)

    async def take(self, client: str = "", key: str = "", amount: int = 1) -> Asked:
        """Wait for units; return what `give_back` must be called with. Who is cancelled has none.

        Requests of one client for other keys do not wait for each other.
        """
        return await self._queue.take((client, key), (client, key, min(amount, self.total)))

    def give_back(self, client: str = "", key: str = "", amount: int = 1) -> None:
        """Give units back."""
        self._count_back((client, key, amount))
        self._queue.wake()

    def _attempt(self, asked: Asked, since: int) -> Asked | Lack:
        """Take units; the first ones of a client wait for no share."""
        client, key, amount = asked
        counters, field, now = self._counters, self._field, time.monotonic_ns()
        held, host = self._held[client], counters.key(f"host {key}")
        if self._per_key:
            if counters.of(host, ByKey.FETCHES) + amount > self._per_key:
                return Lack.OWN
            held = held and counters.of(counters.key(f"client {client}"), ByKey.FETCHES)
        if client and held and held + amount > PART * (self.total - self.used - amount):
            return Lack.OWN
        if now - since > PATIENCE:
            self._starves = True
            counters.set_starving(field, now)
        elif now - counters.starving(field) < FRESH:
            return Lack.ALL
        if not counters.take(field, amount, self.total):
            return Lack.ALL
        self._count(asked, amount)
        if self._per_key and counters.of(host, ByKey.FETCHES) > self._per_key:
            self._count_back(asked)  # another front end took a unit at the same moment
            return Lack.OWN
        if self._starves:
            self._starves = False
            counters.set_starving(field, 0)
        return asked

    def _count_back(self, asked: Asked) -> None:
        self._counters.add(self._field, -asked[2])
        self._count(asked, -asked[2])

    def _count(self, asked: Asked, amount: int) -> None:
        """Add to what the client and the key of a request hold."""
        client, key, _ = asked
        if client:
            self._held[client] += amount
            if not self._held[client]:
                del self._held[client]
        if self._per_key:
            for each in (f"host {key}", f"client {client}") if client else (f"host {key}",):
                self._counters.add_for(self._counters.key(each), ByKey.FETCHES, amount)
