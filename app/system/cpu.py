"""Read the CPU quota of a container's control group, and how much of it has been used.

The files of version 2 are cpu.max and cpu.stat (kernel documentation, admin-guide/cgroup-v2). Those
of version 1 are cpu.cfs_quota_us, cpu.cfs_period_us and cpuacct.usage.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.system.control_groups import MOUNT, own_groups

MICROSECONDS = 1e-6
NANOSECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """A quota of `cores`, possibly a fraction; `used` returns the CPU seconds used so far."""

    cores: float
    used: Callable[[], float]


def cpu_limit(root: Path = Path("/")) -> CpuLimit | None:
    """Return the lowest limit on this process, None if there is none; tests set `root`."""
    found = [limit for limit in _limits(root) if limit is not None]
    return min(found, key=lambda limit: limit.cores, default=None)


def _limits(root: Path) -> Iterator[CpuLimit | None]:
    base = root / MOUNT
    for version, group in own_groups("cpu", root):
        if version == 2:
            yield _second(base / group)
            yield _second(base / "unified" / group)
        else:
            yield _first(base, group)


def _second(folder: Path) -> CpuLimit | None:
    """Return a limit of version 2: `cpu.max` has a quota and a period in microseconds, or `max`."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        if quota == "max":
            return None
        limit = CpuLimit(int(quota) / int(period), lambda: _usage(folder / "cpu.stat"))
        limit.used()
    except (OSError, ValueError):  # the group does not exist, or the kernel lacks the file
        return None
    return limit


def _first(base: Path, group: PurePosixPath) -> CpuLimit | None:
    """Return a limit of version 1, whose controllers have separate trees; below 0 is no limit."""
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
    """Return the CPU seconds in the line `usage_usec N`; raises ValueError without such a line."""
    for line in stat.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec":
            return int(value) * MICROSECONDS
    raise ValueError(f"{stat} has no usage_usec")
