"""Change the command line by which a running process is listed. Linux only."""

import contextlib
from pathlib import Path

START, END = 47, 48
"""Fields of /proc/self/stat (proc(5)), counted from 0: where the command line lies in memory."""


def retitle(before: str, after: str) -> None:
    """Replace a word of this process's command line by one that is no longer.

    Lists of processes then show what this one does now. Where the kernel forbids it nothing is
    changed.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[START - 2]), int(fields[END - 2])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            words = memory.read(end - start).split(b"\0")
            words[words.index(before.encode())] = after.encode()
            changed = b"\0".join(words)
            if len(changed) <= end - start:
                memory.seek(start)
                memory.write(changed.ljust(end - start, b"\0"))
