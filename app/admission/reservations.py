"""Work that is charged for requests whose bodies still arrive, each for a short time."""

from collections import deque
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

    Old ones are taken back when the next request asks for a permit: until then no decision of this
    front end depends on them.
    """

    def __init__(self) -> None:
        self._reserved: deque[tuple[float, Reserving]] = deque()

    def add(self, permit: Reserving, now: float) -> None:
        """Note that work was reserved for a permit at the time `now`."""
        self._reserved.append((now + LONGEST, permit))

    def end_old(self, now: float) -> None:
        """Take back the work of bodies that have not come for too long."""
        while self._reserved and self._reserved[0][0] <= now:
            self._reserved.popleft()[1].unreserve()
