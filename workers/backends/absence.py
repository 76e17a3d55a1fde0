"""The load of several workers together, and when a worker returns that has gone; no sockets."""

import time
from collections.abc import Sequence

from models.domain.backend import Load

SOON = 1.0
"""Seconds in which a worker is first expected back: its successor takes over, or is started."""


def combined(loads: Sequence[Load], up: Sequence[Load], device: str) -> Load:
    """Return the load of all workers together, of which those `up` accept jobs."""
    return Load(
        device=device,
        queued_jobs=sum([each.queued_jobs for each in loads]),
        running_jobs=sum([each.running_jobs for each in loads]),
        service_rate=sum([each.service_rate for each in up]),
        alive=bool(up),
        takes_jpegs=any([each.takes_jpegs for each in up]),
        decoding=min([each.decoding for each in up], default=0.0),
        progress=sum([each.progress for each in loads]),
    )


class Absence:
    """Estimates when a worker will run again: an absence lasts as long again as it has lasted."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._rate = 0.0

    def back_in(self, alive: bool) -> float:
        """Return the seconds until a worker is expected; 0 while a worker is running."""
        if alive:
            self._since = None
            return 0.0
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return max(SOON, now - self._since)

    def rate(self, reported: float, alive: bool) -> float:
        """Return the service rate that is reported, or the last known rate."""
        if reported > 0 or (alive and not self._rate):
            self._rate = reported
        return self._rate
