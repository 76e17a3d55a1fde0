"""Read and write files below allowed local folders; every function blocks: call it on a thread.

A path is walked from the allowed folder, one part at a time, relative to an open directory and
without following symbolic links. So no link below the folder leads out of it, not even a link that
is made between a check and the opening. Links on the way to the allowed folder itself are followed:
the operator chose them.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from app.storage.location import Location
from models.domain.errors import InvalidParameter, NotFound, OriginFailed, StorageFull, TooLarge

PIECE = 1 << 20
"""Bytes of a file that are read, and so are in memory, at a time."""

DEEPEST = 64
"""Folders inside each other that a listing walks through."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, or of a full quota on it."""

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def pieces(location: Location, root: Location, limit: int) -> Generator[bytes, None, None]:
    """Yield the bytes of a regular file below `root`, PIECE at a time.

    Raises NotFound, TooLarge for a file that has more than `limit` bytes now, and OriginFailed.
    """
    with explained(location):
        descriptor = _opened(location, root)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if (size := os.fstat(descriptor).st_size) > limit:
            raise too_large(location, size, limit)
        with explained(location):
            while piece := file.read(PIECE):
                yield piece


def entries(location: Location, root: Location) -> Generator[str, None, None]:
    """Yield the names of the regular files below a folder, in the order of the file system.

    Names that begin with a dot, links, and everything that is no regular file are left out. At most
    DEEPEST folders are open at a time, and none is in memory whole.
    """
    with explained(location), walked(root, location.parts[len(root.parts) :]) as folder:
        yield from _below(folder, ".", "", 0)


def too_large(location: Location, size: int, limit: int) -> TooLarge:
    """Return the error of a file with more than `limit` bytes."""
    return TooLarge(
        f"{location} has {size} bytes; one image has at most {limit} (DARKROOM_MAX_IMAGE_BYTES)"
    )


def _opened(location: Location, root: Location) -> int:
    """Return a descriptor of a regular file.

    A path descriptor is checked before the file is opened, because to open a device or a pipe may
    already do something or block.
    """
    names = location.parts[len(root.parts) :]
    if not names:
        raise IsADirectoryError
    with walked(root, names[:-1]) as folder:
        found = os.open(names[-1], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a link, a device or a pipe"
            raise OriginFailed(f"{location} is {kind}; only regular files are read")
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)


@contextmanager
def walked(root: Location, names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """Provide a path descriptor of the folder that is reached by `names` from `root`."""
    folder = os.open("/" + root.key, _FOLDER)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _below(parent: int, name: str, path: str, depth: int) -> Iterator[str]:
    """Yield the names of files below the folder `name` of `parent`, which begin with `path`."""
    if depth > DEEPEST:
        raise OriginFailed(f"{path} lies more than {DEEPEST} folders deep; list a deeper prefix")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(name, flags, dir_fd=parent)
    try:
        with os.scandir(folder) as found:
            for each in found:
                if each.name.startswith("."):
                    continue
                with suppress(FileNotFoundError, NotADirectoryError):  # replaced meanwhile
                    if each.is_file(follow_symlinks=False):
                        yield path + each.name
                    elif each.is_dir(follow_symlinks=False):
                        yield from _below(folder, each.name, f"{path}{each.name}/", depth + 1)
    finally:
        os.close(folder)


def writing(location: Location, root: Location) -> Generator[None, bytes | None, None]:
    """Make or replace a file with the pieces that are sent, of which an empty one is the last.

    The folders on the way are made. The file gets its name when its bytes are on the disk; a writer
    that is closed before leaves nothing. Raises StorageFull, OriginFailed, and InvalidParameter for
    a location that is `root` itself.
    """
    names = location.parts[len(root.parts) :]
    if not names:
        raise InvalidParameter(f"{location} is a folder that is allowed, not a file below it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with explained(location), walked(root, names[:-1], make=True) as folder:
        temporary = f".darkroom-job-{token_hex(8)}.tmp"
        try:
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as file:
                while piece := (yield):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise


def check_folder(folder: Location, root: Location) -> None:
    """Raise InvalidParameter if `folder`, or a part on the way to it, exists and is no folder.

    Such a file, or a name that is too long, makes every write below it fail, however often it is
    tried. Raises OriginFailed.
    """
    names = folder.parts[len(root.parts) :]
    with explained(folder), suppress(FileNotFoundError), walked(root, names):
        pass  # the first write makes a folder that is missing


@contextmanager
def explained(location: Location) -> Iterator[None]:
    """Turn errors of the file system into errors that a client may read."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"{location}: there is no such file") from None
    except IsADirectoryError:
        raise OriginFailed(f"{location} is a folder; only regular files are read") from None
    except PermissionError:
        raise OriginFailed(f"{location}: the server may not read or write there") from None
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(f"{location}: its disk, or the quota on it, is full") from None
        if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
            raise InvalidParameter(
                f"{location}: a part of it is no folder, or has too long a name; choose another "
                "address (links are not followed)"
            ) from None
        raise OriginFailed(f"{location}: {error.strerror or 'the file system failed'}") from None
