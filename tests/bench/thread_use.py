"""The CPU time of each thread of a server's processes, from proc(5), and what two samples say.

Times are in ticks of 10 ms, so a thread's share of one second is exact to one percent.
"""

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.subject import TICKS, family

LOUD = 0.05
"""Share of a core from which a thread of a worker is listed."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread at one moment: the role of its process, its name, and its CPU seconds.

    The main thread of a process, on which its event loop runs, is named `loop`.
    """

    role: str
    process: int
    name: str
    user: float
    system: float


Sample = dict[int, Thread]
"""Threads by their id."""


def sample(root: int) -> Sample:
    """Return the threads of process `root` and of all its descendants."""
    found: Sample = {}
    for process in family(root):
        with suppress(OSError, ValueError):  # it has ended
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
            for task in os.listdir(f"/proc/{process}/task"):
                with suppress(OSError):
                    stat = Path(f"/proc/{process}/task/{task}/stat").read_text()
                    name, _, rest = stat.partition("(")[2].rpartition(")")
                    fields = rest.split()
                    user, system = (int(each) / TICKS for each in fields[11:13])
                    name = "loop" if int(task) == process else name
                    found[int(task)] = Thread(_role(words), process, name, user, system)
    return found


def figures(before: Sample, after: Sample, seconds: float) -> dict[str, Any]:
    """Return, for each kind of process, cores, the busiest threads and the kernel's share.

    Workers have a line each; front ends are one kind.
    """
    kinds: dict[str, list[tuple[Thread, float, float]]] = defaultdict(list)
    for task, now in after.items():
        was = before.get(task, Thread(now.role, now.process, now.name, 0.0, 0.0))
        user, system = (now.user - was.user) / seconds, (now.system - was.system) / seconds
        kind = now.role if now.role.startswith("worker") else now.role.rstrip(" 0123456789")
        kinds[kind].append((now, user, system))
    return {kind: _kind(threads) for kind, threads in sorted(kinds.items())}


def _kind(threads: list[tuple[Thread, float, float]]) -> dict[str, Any]:
    of_process: dict[int, float] = defaultdict(float)
    of_name: dict[str, list[float]] = defaultdict(list)
    for thread, user, system in threads:
        of_process[thread.process] += user + system
        of_name[thread.name].append(user + system)
    total = sum(user + system for _, user, system in threads)
    return {
        "processes": len(of_process),
        "cores": round(total, 2),
        "in_kernel": round(sum(system for _, _, system in threads) / max(total, 1e-9), 2),
        "busiest_process": round(max(of_process.values()), 2),
        "threads": {
            name: sorted((round(share, 2) for share in shares if share >= LOUD), reverse=True)[:8]
            for name, shares in of_name.items()
            if max(shares) >= LOUD
        },
    }


def _role(words: list[str]) -> str:
    if "app.processes.member" in words:
        return words[-1]
    return "decoders" if any(word.startswith("app.decoders") for word in words) else "server"
