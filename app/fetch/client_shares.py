"""Semaphore whose turns clients share, so that none of them takes the last ones."""

import asyncio
from collections import Counter
from contextvars import ContextVar

import httpcore

MOST_WAITING = 1024
"""Callers that may wait, of all clients together."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The client for which the present task fetches. httpcore has no other way to hand it through."""


class ClientShares:
    """Semaphore of `total` turns; it belongs to one event loop.

    A client may hold as many turns as stay free: half of all if it is alone, then another one half
    of the rest. So it takes several clients with many turns each before one without finds none
    (dynamic threshold, Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262).
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], str] = {}

    async def take(self, client: str) -> None:
        """Wait for a turn, and take it; raise ConnectError if too many wait already."""
        # No caller that waits has a share now: each turn that is given back is offered to all.
        if self._has_share(client):
            self._give(client)
            return
        if len(self._waiting) >= MOST_WAITING:
            raise httpcore.ConnectError("too many host names wait to be resolved")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = client
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:
                self.give_back(client)
            raise

    def give_back(self, client: str) -> None:
        """Give a turn back; the next caller that has a share gets it."""
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        for turn, waiting in list(self._waiting.items()):
            if not turn.done() and self._has_share(waiting):
                del self._waiting[turn]
                self._give(waiting)
                turn.set_result(None)

    def _has_share(self, client: str) -> bool:
        held = self._held[client]
        return self._free > 0 and (held == 0 or held + 1 < self._free)

    def _give(self, client: str) -> None:
        self._free -= 1
        self._held[client] += 1
