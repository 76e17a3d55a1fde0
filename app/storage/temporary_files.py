"""Temporary files of writes, whose names and locks tell which of them are of processes that died.

A file is locked (flock) while the process that writes it lives. Locks of processes of one kernel
exclude each other on every file system that has them, so a file of this kernel without a lock is
abandoned. Between hosts a network file system may keep locks apart: there a file must be old too.
"""

import fcntl
import os
import re
import stat
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

OLD = 86400.0
"""Seconds without a change after which a file of another host, or from before a restart of this
one, is abandoned."""

_NAME = re.compile(r"\.darkroom-[0-9a-f]{8}-[0-9a-f]{16}\.tmp", re.ASCII)


def make(folder: int) -> tuple[str, int]:
    """Make a file in an open folder; return its name, and its descriptor, which holds its lock."""
    while True:
        name = f".darkroom-{_kernel()}-{token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o666, dir_fd=folder)
        try:
            with suppress(OSError):  # without locks, no file is found to be abandoned
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return name, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was taken for an abandoned one before it was locked


def remove_abandoned(folder: int) -> None:
    """Remove the files in an open folder that processes which died have left.

    Other files stay, and so do those that this process may not open. Raises OSError.
    """
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(readable) as found:
            names = [each.name for each in found if _NAME.fullmatch(each.name)]
        for name in names:
            with suppress(OSError):  # it is gone, locked, or of another user
                _remove(readable, name)
    finally:
        os.close(readable)


def _remove(folder: int, name: str) -> None:
    """Remove a file unless it is in use; raises OSError where that is not known."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        state = os.fstat(descriptor)
        here = name.startswith(f".darkroom-{_kernel()}-")
        if stat.S_ISREG(state.st_mode) and (here or state.st_mtime < time.time() - OLD):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)


@cache
def _kernel() -> str:
    """Return 8 hexadecimal digits that name this host since its boot, in all its containers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return "0" * 8
    return sha256(boot).hexdigest()[:8]
