"""Limit the log lines of frequent events, and sum up the events without a line."""

import asyncio
import logging
import time
from collections.abc import Callable

MOST = 10
"""Lines of one period."""

PERIOD = 1.0
"""Seconds of one period."""

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after a number of seconds."""


class LineLimit:
    """Allows `MOST` lines in each `PERIOD`; one line says how many others there would have been.

    `later` is the event loop's `call_later`.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        later: Later | None = None,
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._later = later
        self._since = clock() - PERIOD
        self._lines = self._left_out = 0

    def allows(self) -> bool:
        """Return whether an event that happens now gets its own line; count it if it does not."""
        now = self._clock()
        if now - self._since >= PERIOD:
            self._since, self._lines = now, 0
        if self._lines < MOST:
            self._lines += 1
            return True
        self._left_out += 1
        if self._left_out == 1:
            later = self._later or asyncio.get_running_loop().call_later
            later(PERIOD, self._sum_up)
        return False

    def _sum_up(self) -> None:
        count, self._left_out = self._left_out, 0
        text = "%d more %s in %g s, without a line each"
        self._log.info(text, count, self._what, PERIOD, extra={"count": count})
