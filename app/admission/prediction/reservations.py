"""Work that is charged for requests whose bodies still arrive, each for a short time."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from app.admission.counts.counters import Key
from app.admission.prediction.forecast import Forecast

LONGEST = 1.0
"""Seconds for which the work of a request is reserved while its body arrives."""

PART = 8
"""An eighth of a body must have come before its work is reserved. A body that was announced may
never come and costs its client nothing: thousands of them would keep work from others."""


class Reservation:
    """Work in microseconds that was charged for one request, until it ends."""

    __slots__ = ("_forecast", "_key", "_work")

    def __init__(self, forecast: Forecast, key: Key, work: int) -> None:
        self._forecast = forecast
        self._key = key
        self._work = work
        forecast.charge(key, work)

    def end(self) -> int:
        """Take the work back, if it still is charged; return it."""
        work, self._work = self._work, 0
        self._forecast.charge(self._key, -work)
        return work


class Reservations:
    """The reservations of a front end, oldest first; a timer ends those that are old."""

    def __init__(self, forecast: Forecast, clock: Callable[[], float]) -> None:
        self._forecast = forecast
        self._clock = clock
        self._reserved: deque[tuple[float, Reservation]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def reserve(self, key: Key, kinds: Sequence[Hashable]) -> Reservation:
        """Charge a client for the least work of `kinds`, for at most `LONGEST` seconds."""
        reservation = Reservation(self._forecast, key, self._forecast.least_work(kinds)[0])
        self._reserved.append((self._clock() + LONGEST, reservation))
        if self._timer is None:
            self._wait()
        return reservation

    def _wait(self) -> None:
        seconds = max(0.0, self._reserved[0][0] - self._clock())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock()
        while self._reserved and self._reserved[0][0] <= now:
            self._reserved.popleft()[1].end()
        if self._reserved:
            self._wait()
