"""What a server holds, sampled: memory, descriptors, shared memory, threads, processes."""

import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.harness.processes import tree, usage

QUANTITIES = ("memory_mb", "shared_mb", "descriptors", "threads", "processes")

STEPS = {
    "memory_mb": 50.0,
    "shared_mb": 50.0,
    "descriptors": 16.0,
    "threads": 6.0,
    "processes": 2.0,
}
"""Growth below this is no growth: one buffer more, or one thread that a pool starts late."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all processes of a server, `at` seconds after the start."""

    at: float
    memory_mb: float
    shared_mb: float
    descriptors: int
    threads: int
    processes: int


def sample(pid: int, at: float) -> Sample:
    """Look now."""
    descriptors = threads = 0
    shared = 0
    for each in tree(pid):
        with suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{each}/fd"))
            threads += len(os.listdir(f"/proc/{each}/task"))
            shared += _shared(each)
    found = usage(pid)
    return Sample(at, found.memory / 1e6, shared / 1e6, descriptors, threads, found.processes)


def growth(samples: Sequence[Sample], quantity: str) -> float:
    """Return the median of the last fifth over that of the second fifth; 1 where nothing grows."""
    values = [float(getattr(each, quantity)) for each in samples]
    fifth = max(1, len(values) // 5)
    early = statistics.median(values[fifth : 2 * fifth] or values)
    late = statistics.median(values[-fifth:])
    return late / max(1.0, early) if late - early > STEPS[quantity] else 1.0


def _shared(pid: int) -> int:
    """Return the proportional bytes of shared memory that a process has mapped."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Shmem:"):
            return int(line.split()[1]) * 1024
    return 0
