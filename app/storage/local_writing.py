"""Write files below allowed local folders; every function blocks, so call them on a thread."""

import errno
import os
from contextlib import ExitStack, suppress
from threading import Lock
from typing import BinaryIO

from app.storage import temporary_files
from app.storage.local_files import explained, walked
from app.storage.location import Location
from models.domain.errors import InvalidParameter

NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""Errors of file systems that cannot force a folder to the disk (some network and FUSE ones)."""


class Writing:
    """A file that is being written, and that gets its name when it is complete.

    Each method may run on another thread, and `abort` also while another one runs. The bytes are
    forced to the disk before the file gets its name. Raises StorageFull and OriginFailed, and
    InvalidParameter for a location that is `root` itself.
    """

    def __init__(self, location: Location, root: Location) -> None:
        self._names = location.parts[len(root.parts) :]
        if not self._names:
            raise InvalidParameter(f"{location} is a folder that is allowed, not a file below it")
        self._location, self._root = location, root
        self._lock = Lock()
        self._held = ExitStack()
        self._file: BinaryIO | None = None
        self._folder = -1
        self._temporary = ""
        self._aborted = False

    def add(self, piece: bytes) -> None:
        """Append bytes; the first ones make the folders on the way and a temporary file."""
        with self._lock, explained(self._location):
            if not self._aborted:
                self._opened().write(piece)

    def whole(self, content: bytes) -> None:
        """Write all bytes at once."""
        self.add(content)
        self.finish()

    def finish(self) -> None:
        """Give the file its name, in place of one that had it."""
        with self._lock, explained(self._location):
            if self._aborted:
                return
            file = self._opened()
            file.flush()
            os.fsync(file.fileno())
            folder = self._folder
            os.replace(self._temporary, self._names[-1], src_dir_fd=folder, dst_dir_fd=folder)
            self._held.close()

    def abort(self) -> None:
        """Remove the temporary file; nothing is written after that. After `finish` it does nothing
        but forget.
        """
        with self._lock:
            self._aborted = True
            self._held.close()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            walk = walked(self._root, self._names[:-1], make=True)
            self._folder = self._held.enter_context(walk)
            self._temporary, descriptor = temporary_files.make(self._folder)
            self._held.callback(self._remove)
            self._file = self._held.enter_context(os.fdopen(descriptor, "wb"))
        return self._file

    def _remove(self) -> None:
        with suppress(FileNotFoundError):  # it has got its name
            os.unlink(self._temporary, dir_fd=self._folder)


def check_folder(folder: Location, root: Location) -> None:
    """Raise InvalidParameter if `folder`, or a part on the way to it, exists and is no folder.

    Such a file, or a name that is too long, makes every write below it fail, however often it is
    tried. Raises OriginFailed.
    """
    with explained(folder), suppress(FileNotFoundError):  # the first write makes it
        try:
            with walked(root, folder.parts[len(root.parts) :]):
                pass
        except NotADirectoryError as error:
            name = os.fsencode(error.filename).decode("utf-8", "replace")
            raise InvalidParameter(
                f"{folder}: {name} is no folder; choose another address (links are not followed)"
            ) from None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise InvalidParameter(f"{folder}: a name in it is too long for the disk") from None


def remove_abandoned(folder: Location, root: Location) -> None:
    """Remove what processes that died have left of their writes to a folder.

    Raises OriginFailed.
    """
    with (
        explained(folder),
        suppress(FileNotFoundError, PermissionError),  # it is not there, or cannot be listed
        walked(root, folder.parts[len(root.parts) :]) as found,
    ):
        temporary_files.remove_abandoned(found)


def sync(folder: Location, root: Location) -> None:
    """Force the names of the files in a folder, and of the folders on the way, to the disk.

    Raises NotFound and OriginFailed.
    """
    names = folder.parts[len(root.parts) :]
    with explained(folder):
        for depth in range(len(names), -1, -1):
            with walked(root, names[:depth]) as found:
                _sync(found)


def _sync(folder: int) -> None:
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError:  # a folder that can be written to but not listed
        return
    try:
        os.fsync(readable)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(readable)
