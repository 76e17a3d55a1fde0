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
    for controllers, path in _memberships(root):
        names = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(names), -1, -1):
            quota = _quota(root.joinpath(_GROUPS, controllers, *names[:depth]))
            if quota is not None:
                yield quota


def _memberships(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the folder of the hierarchy, and the path in it, of the cgroups of versions 1 and 2.

    Hierarchies of version 1 are mounted under the names of their controllers, which the kernel may
    list in another order (`cpuacct,cpu` for `cpu,cpuacct`); `cpu` is mostly a link to the folder.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if names == [""]:
            yield "", path
        elif "cpu" in names:
            for folder in {controllers, ",".join(reversed(names)), "cpu"}:
                yield folder, path


def _quota(group: Path) -> float | None:
    """Return the quota of a cgroup in CPUs, None where it has none."""
    given = _text(group / "cpu.max").split()  # "max 100000" without one
    if not given:
        files = (_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        given = [each for each in files if each]  # "-1" without one
    if len(given) != 2 or not all(each.isdecimal() for each in given) or not int(given[1]):
        return None
    return int(given[0]) / int(given[1])


def _text(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())  # the name of a cgroup may be any bytes
    except OSError:
        return ""
