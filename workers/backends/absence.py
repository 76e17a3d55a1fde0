"""The load of several workers together, and when a worker returns that has gone; no sockets."""

import time
from collections.abc import Callable, Sequence

from models.domain.backend import Load

HANDOVER = 1.0
"""Seconds in which the successor of a worker that leaves takes over: it can work before that."""

UNKNOWN_START = 5.0
"""Seconds that a worker's start takes, before a worker has reported its own."""


def combined(loads: Sequence[Load], up: Sequence[Load], device: str) -> Load:
    """Return the load of all workers together, of which those `up` accept jobs."""
    return Load(
        device=device,
        queued_jobs=sum([each.queued_jobs for each in loads]),
        queued_pixels=sum([each.queued_pixels for each in loads]),
        running_jobs=sum([each.running_jobs for each in loads]),
        service_rate=sum([each.service_rate for each in up]),
        alive=bool(up),
        takes_jpegs=any([each.takes_jpegs for each in up]),
        decoding=min([each.decoding for each in up], default=0.0),
        progress=sum([each.progress for each in loads]),
    )


class Absence:
    """Estimates when a worker will run again.

    A start is expected to take as long as the last start took on this machine, from the start of
    the process to its first answer. When that time has passed, the absence is expected to last as
    long again as it has lasted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._start = UNKNOWN_START
        self._rate = 0.0

    def back_in(self, alive: bool, *, hands_over: bool = False) -> float:
        """Return the seconds until a worker is expected; 0 while a worker is running.

        With `hands_over` the last worker left, and its successor only takes its address.
        """
        if alive:
            self._since = None
            return 0.0
        now = self._clock()
        if self._since is None:
            self._since = now
        absent = now - self._since
        if hands_over and absent < HANDOVER:
            return HANDOVER - absent
        return max(self._start - absent, 0.0) if absent < self._start else absent

    def rate(self, reported: float, alive: bool) -> float:
        """Return the service rate that is reported, or the last known rate."""
        if reported > 0 or (alive and not self._rate):
            self._rate = reported
        return self._rate

    def ended(self, start: float) -> None:
        """Note that a worker is running, whose start took `start` seconds (0: unknown)."""
        self._since = None
        self._start = start or self._start
