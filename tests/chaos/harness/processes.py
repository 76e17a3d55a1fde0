"""Memory and CPU time of a server's whole process tree, from /proc."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Proportional resident bytes, CPU seconds, and the number of processes."""

    memory: int
    cpu: float
    processes: int


def tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found.extend(parents.get(each, ()))
    return found


def usage(pid: int) -> Usage:
    """Return what a process tree holds and has used; ended children count through their parents."""
    memory, cpu, processes = 0, 0.0, 0
    for each in tree(pid):
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS
            memory += proportional(each, "Pss:")
            processes += 1
    return Usage(memory, cpu, processes)


def proportional(pid: int, field: str) -> int:
    """Return the bytes of a field of a process, with shared pages divided among those that share
    them.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
