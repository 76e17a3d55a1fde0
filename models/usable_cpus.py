"""The CPUs that this process may use, and how many of them it may keep busy."""

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = "sys/fs/cgroup"


def usable_cpus() -> frozenset[int]:
    """Return the numbers of the CPUs that the affinity and the container leave this process.

    macOS has no affinity of processes; there, all CPUs are usable.
    """
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of CPUs that this process may keep busy: the CPUs that it may use, or fewer
    where a cgroup has a quota of CPU time.

    A part of a CPU is left out. With more threads than the quota allows, the kernel stops all of
    them for the rest of each period, mostly of 100 ms. `root` is the folder of `proc` and `sys`.
    """
    return max(1, min([len(usable_cpus()), *map(int, _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas, in CPUs, of the cgroups that this process is in, and of the cgroups above
    them.

    A container may not see its own path; its cgroup is then at the top of the file system.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            names = [part for part in line[3:].split("/") if part not in ("", "..")]
            for depth in range(len(names), -1, -1):
                # "250000 100000", or "max 100000" without a quota
                given = _text(root.joinpath(_GROUPS, *names[:depth], "cpu.max")).split()
                if len(given) == 2 and all(map(str.isdecimal, given)):
                    yield int(given[0]) / int(given[1])


def _text(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())  # the name of a cgroup may be any bytes
    except OSError:
        return ""
