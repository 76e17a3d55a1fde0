"""The parts of an engine that are made while it already serves: graphs, slots, JPEG encoders and
decoder states.
"""

import logging
import threading
from collections.abc import Callable, Iterator

from workers.scheduling.engine_line import show_thread

log = logging.getLogger("darkroom.cuda")

PAUSE = 0.2
"""Seconds between two parts: the driver makes them under a lock that batches need as well."""

END = 5.0
"""Seconds to wait for the thread, which ends after the part that it is making."""

Part = Callable[[], object]


class LateParts:
    """Makes `parts`, in order, in a thread of its own.

    A part that fails is logged, and the others are made: the engine serves without any of them. If
    `parts` itself fails, no more are made.
    """

    def __init__(self, parts: Iterator[Part]) -> None:
        self._parts = parts
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="late parts", daemon=True)

    def start(self) -> None:
        """Begin; `close` ends it early."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until all parts are made, at most so many seconds; return whether they are."""
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
        except Exception:  # the engine serves without what is left
            log.exception("the parts of the engine that are left cannot be made")

    def _make(self, part: Part) -> None:
        try:
            part()
        except Exception:  # the engine serves without it
            log.exception("a part of the engine cannot be made")
