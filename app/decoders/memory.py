"""The memory through which bytes pass between the service and one decoder process.

Both have mapped it for the whole life of the process. A file goes in, and its pixels come out,
through the same bytes; so do pixels that are encoded, and their file. The memory is as large as the
largest image, and only the bytes that were used take room. Rules of its use:

- No process reads what another process has decoded: an area belongs to one process, is made of
  fresh memory (zeros) for that process, and is never given to another process.
- No image reads what a former image of the same process left here: before the service puts a file
  in, it overwrites all other bytes that were used with zeros.
- No process changes pixels that the service has accepted: `take` copies them out.
- No process takes the memory away from the service: its size is sealed.
"""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL = 26 << 20
"""Estimated bytes of an image that never waits for memory: most filters take less for 2 megapixels
without alpha."""

HEADER_BYTES = 64 << 20
"""Bytes that opening takes beside a file: tables, profiles and chunks that libraries unpack."""

COPIES_OF_FILE = 4
"""Copies of a file that parsers may make: some collect its parts, inflate them and join them. Each
copy of a PNG that is one text of 31 MB took 31 MB, and all of them 146."""

LARGE_FILE = 4 << 20
"""Bytes of a file from which it waits for that memory before it is opened. Smaller ones do not:
their copies take 16 MiB at most."""

KEPT = 8 << 20
"""Bytes of an area that keep their memory between images: 6 MB are the pixels of an ordinary photo
of 2 megapixels. The memory of larger images goes back to the system."""

_MOVED = 8 << 20
"""Bytes that are moved at a time."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Bytes = NDArray[np.uint8]
Taken = Callable[[Bytes], None]


def opening_bytes(file: int) -> int:
    """Return the bytes that opening a file of `file` bytes may take."""
    return HEADER_BYTES + COPIES_OF_FILE * file


def new_area(max_pixels: int, max_file: int) -> int:
    """Return the descriptor of fresh memory for images of these bounds; raises OSError."""
    descriptor = os.memfd_create("area", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    size = 4 * max_pixels + max_file + (1 << 20)
    os.ftruncate(descriptor, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


class SharedArea:
    """One end of the area whose descriptor is given; the descriptor is not needed afterwards."""

    def __init__(self, descriptor: int) -> None:
        self._mapping = mmap.mmap(descriptor, 0)
        self._bytes: Bytes = np.frombuffer(self._mapping, np.uint8)
        self.used = 0
        """Bytes from the start that this end has seen in use, and that may be other than 0."""

    def put(self, *parts: bytes | Bytes, taken: Taken | None = None) -> None:
        """Write `parts` one after the other, and zeros over what was used behind them.

        `taken` is called with pieces that were written. A part that lies at its place already is
        not written. Raises ValueError for more than the area has.
        """
        end = 0
        for part in filter(len, parts):
            source = np.frombuffer(part, np.uint8)
            start, end = end, end + len(source)
            target = self.view(end)[start:]
            if target.ctypes.data != source.ctypes.data:
                _move(source, target, taken)
        self._clear(end)

    def read(self, file: int, size: int) -> None:
        """Put the first `size` bytes of the file of a descriptor into the area."""
        os.preadv(file, [self.view(size).data], 0)
        self._clear(size)

    def take(self, size: int) -> Bytes:
        """Copy the first `size` bytes out; raises ValueError for more than the area has.

        Large pixels leave the area piece by piece, so that both together never take much more
        memory than one of them.
        """
        source = self.view(size)
        if size <= KEPT:
            return source.copy()
        target = np.empty(size, np.uint8)
        _move(source, target, release)
        return target

    def contents(self, size: int) -> bytes:
        """Return the first `size` bytes; raises ValueError for more than the area has."""
        found = self.view(size).tobytes()
        if size > KEPT:
            self._clear(0)
        return found

    def view(self, size: int) -> Bytes:
        """Return the first `size` bytes themselves, for writing; raises ValueError if too many."""
        if not 0 <= size <= len(self._bytes):
            raise ValueError(f"the shared area has {len(self._bytes)} bytes, not {size}")
        self.used = max(self.used, size)
        return self._bytes[:size]

    def _clear(self, start: int) -> None:
        """Make zeros of what was used from `start` on; an image pays for what the last one used."""
        end = self.used
        if end > KEPT:
            least = max(start, KEPT)
            release(self._bytes[least:])
            end = -(-least // mmap.PAGESIZE) * mmap.PAGESIZE
        self._bytes[start:end] = 0
        self.used = start


def _move(source: Bytes, target: Bytes, taken: Taken | None) -> None:
    for start in range(0, len(source), _MOVED):
        piece = source[start : start + _MOVED]
        target[start : start + _MOVED] = piece
        if taken is not None:
            taken(piece)


def release(piece: Bytes) -> None:
    """Give the whole pages of an array back to the system, for all users; they are zeros then.

    Systems other than Linux have no such advice, and keep the pages.
    """
    first = -(-piece.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (piece.ctypes.data + piece.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last <= first or not hasattr(mmap, "MADV_REMOVE"):
        return
    # Of memory that is shared the first removes the pages themselves, and fails on private memory.
    if _libc().madvise(first, last - first, mmap.MADV_REMOVE):
        _libc().madvise(first, last - first, mmap.MADV_DONTNEED)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
