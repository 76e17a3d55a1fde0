"""Choose whether the GPU or a CPU thread decodes a JPEG, by estimated completion time.

Threads help only while decoding is what limits the device and the machine has cores to spare:
pixels are ten times as large as their file, and a worker that is limited by something else loses
more time by copying pixels than by decoding. Threads that decoded too much lowered the rate from
8,900 to 6,400 images per second.
"""

import time
from collections.abc import Callable
from pathlib import Path

from app.system.cpu import CpuLimit, cpu_limit
from models.domain.backend import Load

TYPICAL = 0.002
"""Seconds that a thread is assumed to take for a JPEG before one has been measured."""

NEWEST = 0.1
"""Weight of the newest measurement, from 0 to 1."""

AHEAD = 256
"""Jobs at the device that do not count as a queue: they form its next batches while it works."""

DECODING = 0.8
"""Least share of its recent time that the device must have spent on decoding."""

SPARE = 0.3
"""Least share of all cores that must have been idle recently."""


class IdleCores:
    """Meter of the share of core time that was unused recently; 0 where it is not known.

    It is the smaller of two shares: that of the machine's cores, and that of the container's quota
    if there is one.
    """

    LOOK = 0.25
    """Seconds between two measurements."""

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
        """Return the share, from 0 to 1, by the last measurement."""
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
        """Return the share of the container's quota that was unused in the `passed` seconds."""
        if self._limit is None:
            return 1.0
        used = self._used()
        spent, self._last_used = used - self._last_used, used
        return max(0.0, 1.0 - spent / (self._limit.cores * passed))

    def _used(self) -> float:
        try:
            return 0.0 if self._limit is None else self._limit.used()
        except (OSError, ValueError):  # the control group is gone: count all of it as used
            return self._last_used + 1e9

    def _ticks(self) -> tuple[int, int]:
        """Return idle ticks (waiting for disks included) and all ticks since boot (proc(5))."""
        try:
            with self._stat.open() as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
        except OSError:
            return 0, 0
        return ticks[3] + ticks[4], sum(ticks)


class DecodePlacement:
    """Compares the device's queue with the queue of `threads` codec threads."""

    def __init__(self, threads: int, idle: Callable[[], float] | None = None) -> None:
        self._threads = threads
        self._idle = idle or IdleCores().share
        self._seconds = TYPICAL
        self.waiting = 0

    def measured(self, seconds: float) -> None:
        """Note that a thread decoded a JPEG in `seconds`, without the wait for the thread."""
        self._seconds += NEWEST * (seconds - self._seconds)

    def device_is_sooner(self, load: Load) -> bool:
        """Return whether the device will finish first, by the rates measured so far.

        It does if it is idle, and if the cores are busy.
        """
        if not load.takes_jpegs:
            return False
        queue = load.queued_jobs - AHEAD
        if queue <= 0 or load.decoding < DECODING or self._idle() < SPARE:
            return True
        here = self._seconds * (1 + self.waiting / self._threads)
        return queue <= here * load.service_rate
