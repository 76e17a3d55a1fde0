"""Find the control groups that this process is in, whose files have its limits.

Kernel documentation: admin-guide/cgroup-v2 and admin-guide/cgroup-v1.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

MOUNT = "sys/fs/cgroup"
"""The folder of all groups, below the root of the file system."""


def own_groups(controller: str, root: Path) -> Iterator[tuple[Literal[1, 2], PurePosixPath]]:
    """Yield the version and the path of each group: those of the process, then their ancestors.

    Groups of version 1 are those of `controller`, such as "memory". A system without control groups
    has none. `root` is the root of the file system.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no such kernel
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for group in (own, *own.parents):
            if not controllers:
                yield 2, group
            elif controller in controllers.split(","):
                yield 1, group
