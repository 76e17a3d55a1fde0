"""Work that is charged for requests whose bodies still arrive, each for a short time."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

LONGEST = 1.0
"""Seconds for which the work of a request is reserved while its body arrives. An announced body may
never come, so it takes nothing from others for longer."""


class Reserving(Protocol):
    """A permit for a request."""

    def unreserve(self) -> int:
        """Take back the work that was reserved, if it still is; return it."""


class Reservations:
    """The permits of a front end for which work was reserved, oldest first.

    Old ones are taken back before each decision, and by a timer: front ends to which no request
    comes any more would otherwise keep it from all others for as long as their bodies arrive.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reserved: deque[tuple[float, Reserving]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, permit: Reserving) -> None:
        """Note that work was reserved for a permit now."""
        self._reserved.append((self._clock() + LONGEST, permit))
        if self._timer is None:
            self._wait()

    def end_old(self) -> None:
        """Take back the work of bodies that have not come for too long."""
        now = self._clock()
        while self._reserved and self._reserved[0][0] <= now:
            self._reserved.popleft()[1].unreserve()

    def _wait(self) -> None:
        seconds = max(0.0, self._reserved[0][0] - self._clock())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self.end_old()
        if self._reserved:
            self._wait()
