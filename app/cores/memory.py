"""Memory that this process may use: the machine's, or less where its container has a limit."""

import os
from pathlib import Path, PurePosixPath


def usable_memory(root: Path = Path("/")) -> int:
    """Bytes; `root` is for tests. Control groups of both versions are read."""
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
    """The limit in a file; none where it says `max`, or is not there."""
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):
        return []
