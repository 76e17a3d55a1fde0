"""What a start takes: the seconds of its parts, in the order in which they end."""

import logging
import time
from collections.abc import Callable


class StartTimes:
    """A stopwatch whose parts follow each other without a gap; it begins when it is made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._parts: dict[str, float] = {}

    def end(self, part: str) -> None:
        """End a part, which began when the one before ended; equal names are added up."""
        now = self._clock()
        self._parts[part] = self._parts.get(part, 0.0) + now - self._last
        self._last = now

    def log(self, log: logging.Logger, what: str) -> None:
        """Write one line at level INFO: what was prepared, and the seconds of all parts."""
        parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in self._parts.items())
        log.info("%s is prepared in %.2f s: %s", what, sum(self._parts.values()), parts)
