"""Change the command line by which a running process is listed. Linux only."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

START, END = 47, 48
"""Fields of /proc/self/stat (proc(5)), counted from 0: where the command line lies in memory."""


def retitle(changes: Mapping[str, str]) -> None:
    """Replace words of this process's command line; all together they may not become longer.

    Lists of processes then show what this one does now. Where the kernel forbids it nothing is
    changed.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[START - 2]), int(fields[END - 2])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            words = memory.read(end - start).rstrip(b"\0").split(b"\0")
            for before, after in changes.items():
                words[words.index(before.encode())] = after.encode()
            changed = b"\0".join(words)
            if len(changed) < end - start:  # the last word ends with a zero byte as well
                memory.seek(start)
                memory.write(changed.ljust(end - start, b"\0"))
