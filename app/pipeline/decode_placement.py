"""Who decodes a JPEG, the device or a thread here: whoever will have done it first.

Threads help only while decoding is what limits the device and the machine has cores to spare:
pixels are ten times as large as their file, and a worker that is busy otherwise loses more time on
copying them than on decoding. Measured with helpers that were too eager: 6,400 images a second
instead of 8,900.
"""

import time
from collections.abc import Callable
from pathlib import Path

from app.cores.cgroup import CpuLimit, cpu_limit
from models.domain.backend import Load

TYPICAL = 0.002
"""Seconds a thread takes for a JPEG, before one has been measured."""

NEWEST = 0.1
"""Share of the newest measurement."""

AHEAD = 256
"""Jobs at the device that are no queue yet: its next batches, which form while it works."""

DECODING = 0.8
"""Share of its time that the device must have been decoding lately."""

SPARE = 0.3
"""Share of all cores that must have been idle lately."""


class IdleCores:
    """The share of the core time that was unused lately; 0 where it is not known.

    The smaller of two: of the machine's cores, and of the container's quota, where it has one.
    """

    LOOK = 0.25
    """Seconds between two looks."""

    def __init__(
        self,
        stat: Path = Path("/proc/stat"),
        limit: Callable[[], CpuLimit | None] = cpu_limit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stat = stat
        self._limit = limit()
        self._clock = clock
        self._share = 0.0
        self._looked_at = clock() - self.LOOK
        self._last = self._ticks()
        self._last_used = self._used()

    def share(self) -> float:
        """0…1, as of the last look."""
        now = self._clock()
        passed = now - self._looked_at
        if passed >= self.LOOK:
            self._looked_at = now
            idle, whole = self._ticks()
            if whole > self._last[1]:
                ours = self._of_quota(passed)
                self._share = min((idle - self._last[0]) / (whole - self._last[1]), ours)
            self._last = idle, whole
        return self._share

    def _of_quota(self, passed: float) -> float:
        """The share of the container's quota that was unused in the seconds that passed."""
        if self._limit is None:
            return 1.0
        used = self._used()
        spent, self._last_used = used - self._last_used, used
        return max(0.0, 1.0 - spent / (self._limit.cores * passed))

    def _used(self) -> float:
        try:
            return 0.0 if self._limit is None else self._limit.used()
        except (OSError, ValueError):  # the group has gone: as if all were used
            return self._last_used + 1e9

    def _ticks(self) -> tuple[int, int]:
        """Idle (waiting for disks too) and in all, since the machine started (proc(5))."""
        try:
            with self._stat.open() as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
        except OSError:
            return 0, 0
        return ticks[3] + ticks[4], sum(ticks)


class DecodePlacement:
    """Weighs the device's queue against that of `threads` codec threads."""

    def __init__(self, threads: int, idle: Callable[[], float] | None = None) -> None:
        self._threads = threads
        self._idle = idle or IdleCores().share
        self._seconds = TYPICAL
        self.waiting = 0

    def measured(self, seconds: float) -> None:
        """A thread decoded a JPEG in so many seconds, waiting for the thread not counted."""
        self._seconds += NEWEST * (seconds - self._seconds)

    def device_is_sooner(self, load: Load) -> bool:
        """By the rates measured so far; an idle device always is, and one beside busy cores."""
        if not load.takes_jpegs:
            return False
        queue = load.queued_jobs - AHEAD
        if queue <= 0 or load.decoding < DECODING or self._idle() < SPARE:
            return True
        here = self._seconds * (1 + self.waiting / self._threads)
        return queue <= here * load.service_rate
