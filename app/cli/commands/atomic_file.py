"""Files that are there wholly or not at all, and that replace nothing unless they are told to."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")
"""Names of what this process has open already: written to, never replaced."""

NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
"""What file systems without hard links (FAT, some network and FUSE ones) answer to a link."""


def write(path: Path, data: bytes, *, replace: bool) -> None:
    """Make `path` with `data`: a reader, a crash or a full disk never meets half of it.

    Raises FileExistsError where a file is there and may not be replaced, else OSError. Of a
    symbolic link the file it points to is made or replaced. Permissions follow the umask. Devices
    and pipes are written to as they are.
    """
    if is_stream(path):
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb") as stream:
            stream.write(data)
        return
    with unfinished(path, replace=replace) as temporary, temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def unfinished(path: Path, *, replace: bool) -> Iterator[Path]:
    """A name beside `path` for the block to write to; the file becomes `path` when it ends well.

    Whatever else ends the block, Ctrl-C included, removes the file.
    """
    target = path.resolve()
    temporary = target.with_name(f".darkroom-{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        if replace:
            os.replace(temporary, target)
        else:
            _publish(temporary, target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def check_writable(folder: Path) -> None:
    """Make and remove a file in `folder`; raises OSError where that is impossible."""
    probe = folder / f".darkroom-{secrets.token_hex(8)}.tmp"
    try:
        probe.open("xb").close()
    finally:
        with suppress(OSError):
            probe.unlink()


def is_stream(path: Path) -> bool:
    """Whether `path` is there and no regular file (a device, a pipe), or an open descriptor."""
    if str(path).startswith(DESCRIPTORS):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # it is not there, or cannot be: whoever opens it gets the same error
        return False


def _publish(temporary: Path, target: Path) -> None:
    """Give the file its name unless that is taken: two processes cannot both succeed."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        target.open("xb").close()  # reserves the name
        os.replace(temporary, target)
