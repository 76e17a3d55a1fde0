"""Read how much memory this process may use: the machine's, or less if a container limits it."""

import os
from pathlib import Path

from app.system.control_groups import MOUNT, own_groups


def usable_memory(root: Path = Path("/")) -> int:
    """Return the bytes, from control groups of both versions; tests set `root`."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for version, group in own_groups("memory", root):
        if version == 2:
            limits += _limit(root / MOUNT / group / "memory.max")
        else:
            limits += _limit(root / MOUNT / "memory" / group / "memory.limit_in_bytes")
    return min(limits)


def _limit(file: Path) -> list[int]:
    """Return the limit in a file; an empty list if it says `max` or does not exist."""
    try:
        return [int(file.read_text())]
    except (OSError, ValueError):
        return []
