"""Semaphore whose turns clients share, so that none of them takes the last ones."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.admission.fair_queue import FairQueue, Lack

May = Callable[[int, int], bool]
"""Returns whether a client may take one more turn: its arguments are the number of turns that the
client holds, and the number of turns that are free.

It refuses a client with more turns, or while fewer are free, whenever it refuses another one.
"""


def at_most(most: int) -> May:
    """Let a client hold at most `most` turns."""
    return lambda held, _free: held < most


def times_free(times: int) -> May:
    """Let a client hold at most `times` as many turns as stay free, and one in any case.

    With `times` = 1 it may have half of all if it is alone, then another one half of the rest. So
    it takes several clients with many turns each before one without finds none (dynamic threshold,
    Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262).
    """
    return lambda held, free: held == 0 or held + 1 <= times * (free - 1)


class FairSemaphore:
    """Semaphore of `total` turns, of which each client takes as many as `may` allows, in an order
    that is fair to clients (`FairQueue`). It belongs to one event loop.
    """

    def __init__(self, total: int, may: May) -> None:
        self._total = self._free = total
        self._may = may
        self._held = Counter[str]()
        self._queue = FairQueue(self._attempt, self._count_back, self._held.__getitem__)

    def __len__(self) -> int:
        """Return the number of clients that hold a turn or wait for one."""
        return len(self._held.keys() | self._queue.clients)

    @property
    def waiting(self) -> int:
        """Return how many callers wait for a turn."""
        return len(self._queue)

    def set_total(self, total: int) -> None:
        """Change the number of turns from now on; those that are taken already are kept."""
        self._free += total - self._total
        self._total = total
        self._queue.wake()

    def take_now(self, client: str) -> bool:
        """Return whether a turn was taken, which is not waited for."""
        return self._queue.take_now(client)

    async def take(self, client: str) -> None:
        """Wait for a turn, and take it. A caller that is cancelled keeps none."""
        await self._queue.take(client)

    def give_back(self, client: str) -> None:
        """Give a turn back."""
        self._count_back(client)
        self._queue.wake()

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for `client` while the block runs."""
        await self.take(client)
        try:
            yield
        finally:
            self.give_back(client)

    def _attempt(self, client: str, _key: str, _since: int) -> Lack | None:
        held = self._held[client]
        if self._free <= 0 or not self._may(held, self._free):
            return Lack.ALL  # clients that hold more, which come later, may take none either
        self._free -= 1
        self._held[client] = held + 1
        return None

    def _count_back(self, client: str, _key: str = "") -> None:
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
