"""Wait before a server is asked again: as long as it says, else twice as long each time."""

import random
import time
from asyncio import sleep
from collections.abc import Callable

FIRST, MOST = 0.5, 30.0
"""Seconds of the first wait and of the longest one."""

TEMPORARY = (429, 502, 503, 504)
"""Statuses of answers after which the same request may succeed."""


def is_temporary(status: int) -> bool:
    """Return whether the same request may succeed later."""
    return status in TEMPORARY


class Backoff:
    """The waits of one request; they end after `patience` seconds. `reason` is the last failure.

    Waits are spread at random, so that requests that failed together do not return together.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._end, self._next = clock, clock() + patience, FIRST
        self.reason = ""

    def seconds(self, told: float) -> float:
        """Return the next wait; a server has `told` how long it wants at least, or 0."""
        wait = max(told, self._next * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
        self._next = min(MOST, 2 * self._next)
        return wait

    async def wait(self, told: float) -> bool:
        """Wait; return False instead if the patience would end meanwhile."""
        seconds = self.seconds(told)
        if self._clock() + seconds > self._end:
            return False
        await sleep(seconds)
        return True


def told_seconds(header: str | None) -> float:
    """Return the seconds of `Retry-After`, 0 without them; a date is not read."""
    try:
        return min(300.0, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0
