"""Read how much memory this process may use: the machine's, or less if a container limits it."""

import os
from pathlib import Path, PurePosixPath


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes, from control groups of both versions; tests set `root`."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no such kernel
        return limits[0]
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for group in (own, *own.parents):
            if not controllers:
                limits += _limit(base / group / "memory.max")
            elif "memory" in controllers.split(","):
                limits += _limit(base / "memory" / group / "memory.limit_in_bytes")
    return min(limits)


def _limit(file: Path) -> list[int]:
    """Return the limit in a file; an empty list if it says `max` or does not exist."""
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):
        return []
