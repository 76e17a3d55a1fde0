"""Limit log lines that attackers can cause: at most one line of each kind in ten seconds."""

import logging
import time
from collections.abc import Callable

INTERVAL = 10.0
"""Seconds between two lines of one kind."""


class Notices:
    """Writes a warning at most once per interval and key, with the number of omitted ones."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, key: str, message: str) -> None:
        """Log `message`, or only count it if a message of the same `key` was logged recently."""
        now = self._clock()
        if now - self._last.get(key, -INTERVAL) < INTERVAL:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._last[key] = now
        again = self._left_out.pop(key, 0)
        more = f" ({again} more since the last such line)" if again else ""
        self._log.warning("%s%s", message, more)
