"""Write files completely or not at all, and replace none unless told to."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")
"""Names of files that this process has open: they are written to, never replaced."""

NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
"""Errors of a link on file systems without hard links (FAT, some network and FUSE ones)."""

NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors of file systems that cannot force a folder to the disk (some network and FUSE ones)."""


def write(path: Path, data: bytes, *, replace: bool) -> None:
    """Make `path` with `data`; no reader sees half of it, and no crash or full disk leaves half.

    Raises FileExistsError where a file exists and may not be replaced, else OSError. If `path` is a
    symbolic link, the file that it points to is made or replaced. Permissions follow the umask.
    Devices and pipes are written to directly.
    """
    if is_stream(path):
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb") as stream:
            stream.write(data)
        return
    with unfinished(path, replace=replace) as temporary:
        temporary.write_bytes(data)


@contextmanager
def unfinished(path: Path, *, replace: bool) -> Iterator[Path]:
    """Yield a name beside `path` to write to; the file becomes `path` when the block ends well.

    Its content is on the disk then. If the block ends in another way, Ctrl-C included, the file is
    removed.
    """
    target = path.resolve()
    temporary = target.with_name(f".darkroom-{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, target)
        else:
            publish(temporary, target)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def is_stream(path: Path) -> bool:
    """Return whether `path` is a device, a pipe or an open descriptor, not a regular file."""
    if str(path).startswith(DESCRIPTORS):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # it is missing, or cannot exist: opening it gives the same error
        return False


def sync_folder(folder: Path) -> None:
    """Force the names in `folder` to the disk, so that they survive a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a folder that can be written to but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def publish(temporary: Path, target: Path) -> None:
    """Give the file its name unless the name is taken: only the first of two processes can
    succeed.
    """
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        target.open("xb").close()  # reserves the name
        os.replace(temporary, target)
