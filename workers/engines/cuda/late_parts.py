"""The parts of an engine that are made while it already serves: graphs, slots, JPEG encoders and
decoder states.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workers.scheduling.engine_line import show_thread

log = logging.getLogger("darkroom.cuda")

PAUSE = 0.2
"""Seconds between two parts: the driver makes them under a lock that batches need as well."""

END = 5.0
"""Seconds to wait for the thread, which ends after the part that it is making."""

AGAIN = (5.0, 20.0, 60.0)
"""Seconds until a part that failed is made again, where another try may help."""

Part = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Retried:
    """A part that is made again if it fails. That is for memory: a worker starts before the driver
    has released that of the killed one in whose place it is.
    """

    make: Part

    def __call__(self) -> None:
        """Make the part."""
        self.make()


class LateParts:
    """Makes `parts`, in order, in a thread of its own.

    A part that fails is logged, and the others are made: the engine serves without any of them. One
    that is `Retried` is made again, as often as AGAIN says. If `parts` itself fails, no more are
    made.
    """

    def __init__(self, parts: Iterator[Part]) -> None:
        self._parts = parts
        self._closing = threading.Event()
        self._failed: list[tuple[float, int, Retried]] = []
        self._thread = threading.Thread(target=self._run, name="late parts", daemon=True)

    def start(self) -> None:
        """Begin; `close` ends it early."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until all parts are made, for at most this many seconds; return whether they are."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Make no further parts, and wait for the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(END)

    def _run(self) -> None:
        show_thread("late parts")
        try:
            for part in self._parts:
                self._make(part)
                if self._closing.wait(PAUSE):
                    return
                self._make_again()
            while self._failed and not self._closing.wait(PAUSE):
                self._make_again()
        except Exception:  # the engine serves without what is left
            log.exception("the parts of the engine that are left cannot be made")

    def _make(self, part: Part, tries: int = 0) -> None:
        try:
            part()
        except Exception:  # the engine serves without it
            log.exception("a part of the engine cannot be made")
            if isinstance(part, Retried) and tries < len(AGAIN):
                self._failed.append((time.monotonic() + AGAIN[tries], tries + 1, part))

    def _make_again(self) -> None:
        now, failed = time.monotonic(), self._failed
        self._failed = [each for each in failed if each[0] > now]
        for due, tries, part in failed:
            if due <= now and not self._closing.is_set():
                self._make(part, tries)
