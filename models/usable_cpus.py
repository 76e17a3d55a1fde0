"""The CPUs that this process may use, on systems with and without an affinity of processes."""

import os


def usable_cpus() -> frozenset[int]:
    """Return the numbers of the CPUs that the affinity and the container leave this process.

    macOS has no affinity of processes; there, all CPUs are usable.
    """
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
