"""Who decodes a JPEG, the device or a thread here: whoever will have done it first. Pure."""

from models.backend import Load

TYPICAL = 0.002
"""Seconds a thread takes for a JPEG, before one has been measured."""

NEWEST = 0.1
"""Share of the newest measurement."""


class DecodeChoice:
    """Weighs the device's queue against that of `threads` codec threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._seconds = TYPICAL
        self.waiting = 0

    def measured(self, seconds: float) -> None:
        """A thread decoded a JPEG in so many seconds, waiting for the thread not counted."""
        self._seconds += NEWEST * (seconds - self._seconds)

    def device_is_sooner(self, load: Load) -> bool:
        """By the rates measured so far; an idle device always is."""
        if not load.takes_jpegs:
            return False
        if not load.service_rate or not load.queued_jobs:
            return True
        there = load.queued_jobs / load.service_rate
        here = self._seconds * (1 + self.waiting / self._threads)
        return there <= here
