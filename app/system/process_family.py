"""Read the memory, CPU time and files of the processes of this server. Linux only.

The source is proc(5): the command line, `stat`, `statm`, `fd` and `task/TID/children`.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Stat:
    """Fields of /proc/PID/stat behind the name of the program, counted from its state."""

    PARENT = 1
    OWN_TICKS = slice(11, 13)
    CHILDREN_TICKS = slice(13, 15)
    STARTED = 19


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What one process uses.

    `words` is its command line. `cpu` is seconds since its start, `cpu_of_ended` those of its
    children that have ended; `started` is in seconds since the machine started; `resident` is in
    bytes.
    """

    pid: int
    parent: int
    words: tuple[str, ...]
    cpu: float
    cpu_of_ended: float
    started: float
    resident: int
    descriptors: int


def process_family(root: int, proc: Path = _PROC) -> Iterator[ProcessUse]:
    """Yield the use of process `root` and of all its descendants, parents before their children.

    A process that ends meanwhile is left out. Tests set `proc`.
    """
    with suppress(OSError, ValueError):  # it has ended, or belongs to another user
        yield _use(root, proc)
        for child in _children(root, proc):
            yield from process_family(child, proc)


def boot_time(proc: Path = _PROC) -> float:
    """Return when the machine started, in seconds since 1970; 0 if the kernel does not say."""
    with suppress(OSError, ValueError):
        for line in (proc / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    return 0.0


def _use(pid: int, proc: Path) -> ProcessUse:
    folder = proc / str(pid)
    # The name of the program is in brackets and may have spaces and brackets itself.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    command = (folder / "cmdline").read_bytes().rstrip(b"\0")
    return ProcessUse(
        pid,
        int(fields[_Stat.PARENT]),
        tuple(command.decode(errors="replace").split("\0")),
        sum(map(int, fields[_Stat.OWN_TICKS])) / _TICKS,
        sum(map(int, fields[_Stat.CHILDREN_TICKS])) / _TICKS,
        int(fields[_Stat.STARTED]) / _TICKS,
        int((folder / "statm").read_text().split()[1]) * _PAGE,
        _descriptors(folder / "fd"),
    )


def _descriptors(folder: Path) -> int:
    """Return the number of open files; 0 where only root may know, as of decoder processes."""
    with suppress(PermissionError):
        return len(os.listdir(folder))
    return 0


def _children(pid: int, proc: Path) -> Iterator[int]:
    """Yield the children of each thread of a process."""
    for task in sorted((proc / str(pid) / "task").iterdir()):
        with suppress(OSError):  # the thread has ended
            yield from map(int, (task / "children").read_text().split())


def is_alive(pid: int) -> bool:
    """Return whether a process with this number exists, of any user; a zombie counts as alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return True


def own_folder(prefix: str, parent: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Make a temporary folder that is named by `prefix` and the id of this process.

    Folders with the same prefix are removed that processes of this user left when they were killed.
    """
    where = parent or Path(tempfile.gettempdir())
    for left in where.glob(f"{prefix}-*-*"):
        number = left.name.removeprefix(f"{prefix}-").split("-")[0]
        ended = number.isdecimal() and not is_alive(int(number))
        if ended and left.is_dir() and left.stat().st_uid == os.getuid():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{prefix}-{os.getpid()}-", dir=where)
