"""Leave refused requests unread for a moment: most of their clients leave, and send no more."""

import asyncio
from collections.abc import Callable, Iterator

from app.connections.bare.discarded_connection import DiscardedConnection, Watched

REST = 0.02
"""Seconds before the rest of a refused request is read."""

TOGETHER = 0.005
"""Seconds by which a rest may be shorter, so that one turn of the event loop ends several."""


class Resting:
    """The connections that were refused less than about `REST` seconds ago.

    After that time `resume` is called for each. One timer serves all: with one for each connection,
    an event loop that had nothing else to do was woken for each millisecond in which some were
    refused.
    """

    def __init__(self, resume: Callable[[DiscardedConnection], None]) -> None:
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._until: dict[DiscardedConnection, float] = {}  # in the order of these moments
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[DiscardedConnection]:
        return iter(list(self._until))

    def add(self, refused: DiscardedConnection) -> None:
        """Let a connection rest."""
        self._until[refused] = self._loop.time() + REST
        if self._timer is None:
            self._timer = self._loop.call_later(REST, self._turn)

    def remove(self, watched: Watched) -> bool:
        """End the rest of a connection; return whether it was one of these."""
        if not isinstance(watched, DiscardedConnection):
            return False
        return self._until.pop(watched, None) is not None

    def end(self) -> None:
        """Call `resume` no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        for refused, until in list(self._until.items()):
            if until > now + TOGETHER:
                self._timer = self._loop.call_at(until, self._turn)
                return
            self._resume(refused)
