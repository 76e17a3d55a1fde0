"""The CPU limit of a container: its control group's quota and what has been used of it.

Both versions of control groups are read: cpu.max and cpu.stat of version 2 (kernel documentation,
admin-guide/cgroup-v2), cpu.cfs_quota_us, cpu.cfs_period_us and cpuacct.usage of version 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MICROSECONDS = 1e-6
NANOSECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """A quota of `cores` (a fraction is possible); `used` tells the CPU seconds spent of it."""

    cores: float
    used: Callable[[], float]


def cpu_limit(root: Path = Path("/")) -> CpuLimit | None:
    """The narrowest limit on this process, None where there is none; `root` is for tests."""
    found = [limit for limit in _limits(root) if limit is not None]
    return min(found, key=lambda limit: limit.cores, default=None)


def _limits(root: Path) -> Iterator[CpuLimit | None]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no such kernel
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for group in (own, *own.parents):
            if not controllers:
                yield _second(base / group)
                yield _second(base / "unified" / group)
            elif "cpu" in controllers.split(","):
                yield _first(base, group)


def _second(folder: Path) -> CpuLimit | None:
    """As version 2 has it: `cpu.max` is a quota and a period in microseconds, or `max`."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        if quota == "max":
            return None
        limit = CpuLimit(int(quota) / int(period), lambda: _usage(folder / "cpu.stat"))
        limit.used()
    except (OSError, ValueError):  # no such group here, or a kernel that says less
        return None
    return limit


def _first(base: Path, group: PurePosixPath) -> CpuLimit | None:
    """As version 1 has it, in hierarchies of its own; a quota below 0 is none."""
    cpu = next((base / n / group for n in ("cpu", "cpu,cpuacct") if (base / n).is_dir()), None)
    usage = next(
        (
            base / n / group / "cpuacct.usage"
            for n in ("cpuacct", "cpu,cpuacct")
            if (base / n / group / "cpuacct.usage").is_file()
        ),
        None,
    )
    if cpu is None or usage is None:
        return None
    try:
        quota = int((cpu / "cpu.cfs_quota_us").read_text())
        period = int((cpu / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    if quota <= 0:
        return None
    return CpuLimit(quota / period, lambda: int(usage.read_text()) * NANOSECONDS)


def _usage(stat: Path) -> float:
    """CPU seconds from the line `usage_usec N`."""
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec":
            return int(value) * MICROSECONDS
    raise ValueError(f"{stat} has no usage_usec")
