"""Memory files without a name (memfd_create(2)), by which bytes pass between processes.

Memory files need no /dev/shm, leave no name behind, and end with their last user. Ordinary images
go through `SharedArea`: memory that the service and one decoder process have mapped for the whole
life of the process. A file goes in and its pixels come out through the same bytes, which takes a
tenth of the time of a memory file for each image. What reuse may not do, and how that is ensured:

- No process reads what another process has decoded: an area belongs to one process, is made of
  fresh memory (zeros) for it, and is never given to another process.
- No image reads what a former image of the same process left here: before the service puts a file
  in, it overwrites all other bytes that were used with zeros.
- No process changes pixels that the service has accepted: `take` copies them out. A lease without
  a copy would save 0.05 ms, but a process that a later file has taken over could still write there.
- No process takes the memory away from the service: its size is sealed.
"""

import ctypes
import fcntl
import math
import mmap
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.decoders.messages import Descriptor
from models.domain.image import Pixels

SMALL = 26 << 20
"""Estimated bytes of an image that never waits for memory: most filters take less for 2 megapixels
without alpha."""

HEADER_BYTES = 64 << 20
"""Bytes that opening takes beside a file: tables, profiles and chunks that libraries unpack."""

COPIES_OF_FILE = 4
"""Copies of a file that parsers may make: some collect its parts, inflate them and join them. Each
of those of a PNG that is one text of 31 MB took 31 MB, and all of them 146."""

LARGE_FILE = 4 << 20
"""Bytes of a file from which it waits for that memory before it is opened. Smaller ones do not:
their copies take 16 MiB at most."""


def opening_bytes(file: int) -> int:
    """Return the bytes that opening a file of `file` bytes may take."""
    return HEADER_BYTES + COPIES_OF_FILE * file


_MOVED = 8 << 20
"""Bytes that are moved at a time."""

_POPULATE = 0x8000  # MAP_POPULATE: one call instead of a page fault every 4 KiB


def memory_file(*parts: bytes | memoryview) -> Descriptor:
    """Return a new memory file that holds `parts` one after the other."""
    descriptor = Descriptor(os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    for part in parts:
        _write(descriptor.number, part)
    return descriptor


def moved_to_file(pixels: NDArray[np.uint8], behind: bytes = b"") -> Descriptor:
    """Return a new memory file of `pixels`, and of the bytes `behind` them.

    The pixels lose their memory meanwhile, piece by piece, so that both together never take much
    more than one of them. They must be C-contiguous, and needed by nothing else.
    """
    descriptor = memory_file()
    flat = pixels.reshape(-1)
    for start in range(0, len(flat), _MOVED):
        piece = flat[start : start + _MOVED]
        _write(descriptor.number, piece.data)
        release(piece)
    _write(descriptor.number, behind)
    return descriptor


def release(piece: NDArray[np.uint8]) -> None:
    """Give the whole pages of an array back to the system, for all users; it is worthless then.

    Systems other than Linux have no such advice, and keep the pages.
    """
    first = -(-piece.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (piece.ctypes.data + piece.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last <= first or not hasattr(mmap, "MADV_REMOVE"):
        return
    # Of memory that is shared the first removes the pages themselves, and fails on private memory.
    if _libc().madvise(first, last - first, mmap.MADV_REMOVE):
        _libc().madvise(first, last - first, mmap.MADV_DONTNEED)


def return_freed_memory() -> None:
    """Give free pages of the allocator back, of which glibc keeps up to 64 MB; takes some ms."""
    if hasattr(libc := _libc(), "malloc_trim"):
        libc.malloc_trim(0)


def _write(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def contents(descriptor: Descriptor, size: int) -> bytes:
    """Read the first `size` bytes of a file, whatever its position is; raises ValueError for a
    shorter one, for which any size would be allocated.
    """
    if os.fstat(descriptor.number).st_size < size:
        raise ValueError(f"the file has fewer than {size} bytes")
    return os.pread(descriptor.number, size, 0)


def mapped(descriptor: Descriptor, size: int) -> NDArray[np.uint8]:
    """Map the first `size` bytes of a memory file, shared with its other users; nothing is copied.

    The file is sealed first: the process that made it could otherwise shorten it, and reading the
    missing pages would end the service with SIGBUS. Raises ValueError for a file that is too short,
    and OSError.
    """
    fcntl.fcntl(descriptor.number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    if os.fstat(descriptor.number).st_size < size:
        raise ValueError(f"the memory file has fewer than {size} bytes")
    return np.asarray(Mapping(descriptor, size, populate=True))


class Mapping:
    """Shared mapping of the first `size` bytes of a memory file, as a numpy array sees it.

    It ends with the last array that refers to it. Python's own `mmap` keeps a descriptor for each
    mapping (until 3.13); hundreds of images in flight would take them away from connections.
    Raises OSError.
    """

    def __init__(self, descriptor: Descriptor, size: int, *, populate: bool) -> None:
        self._size = size
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)
        address = _libc().mmap(None, size, protection, flags, descriptor.number, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "the memory of a decoder process cannot be mapped")
        self._address = address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self._address, False),
            "shape": (self._size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        if address := getattr(self, "_address", None):
            _libc().munmap(address, self._size)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


AREA_SIZE = 8 << 20
"""Bytes of an area, of which only those that were used take memory. 6 MB are the pixels of an
ordinary photo of 2 megapixels; larger files and images go through memory files of their own."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedArea:
    """One end of the area; `descriptor` is its memory file, which is not needed afterwards."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._mapping = Mapping(descriptor, AREA_SIZE, populate=False)
        self._bytes: NDArray[np.uint8] = np.asarray(self._mapping)
        self._memory = self._bytes.data
        self.used = 0
        """Bytes from the start that this end has written or taken, and that may be other than 0."""

    def put(self, *parts: bytes | memoryview) -> None:
        """Write `parts` one after the other, and zeros over what was used behind them."""
        end = 0
        for part in parts:
            start, end = end, end + len(part)
            self._memory[start:end] = part
        # Only what was used can differ from zero, so an image pays for clearing what the one before
        # it used, not for the whole area.
        self._bytes[end : self.used] = 0
        self.used = end

    def take(self, size: int) -> NDArray[np.uint8]:
        """Copy the first `size` bytes out; raises ValueError for more than the area has."""
        return self.view(size).copy()

    def contents(self, size: int) -> bytes:
        """Return the first `size` bytes; raises ValueError for more than the area has."""
        return self.view(size).tobytes()

    def view(self, size: int) -> NDArray[np.uint8]:
        """Return the first `size` bytes themselves, for writing; raises ValueError if too many."""
        if not 0 <= size <= AREA_SIZE:
            raise ValueError(f"the shared area has {AREA_SIZE} bytes, not {size}")
        self.used = max(self.used, size)
        return self._bytes[:size]


def new_area() -> tuple[SharedArea, Descriptor]:
    """Make an area of fresh memory, and the descriptor by which a process can map it."""
    descriptor = Descriptor(os.memfd_create("area", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.ftruncate(descriptor.number, AREA_SIZE)
    fcntl.fcntl(descriptor.number, fcntl.F_ADD_SEALS, _SEALS)
    return SharedArea(descriptor), descriptor


POPULATED = 32 << 20
"""Largest array, in bytes, whose pages are made at once, which takes half of the time of faults.

Those of larger ones come as rows are written: Pillow's picture shrinks meanwhile.
"""


class NewPixels:
    """Maker of the arrays of one image; the codec fills the one that it asked for last."""

    def __init__(self) -> None:
        self._pixels: Pixels | None = None
        self._file: Descriptor | None = None

    def __call__(self, shape: tuple[int, int, int]) -> Pixels:
        """Return an array of `shape`, in a new memory file if it does not fit the shared area.

        Raises MemoryError.
        """
        self._pixels = self._file = None
        size = math.prod(shape)
        if size <= AREA_SIZE:
            return np.empty(shape, np.uint8)
        try:
            self._file = memory_file()
            os.ftruncate(self._file.number, size)
            flat = np.asarray(Mapping(self._file, size, populate=size <= POPULATED))
        except OSError as error:
            raise MemoryError("there is no memory for the pixels") from error
        self._pixels = flat.reshape(shape)
        return self._pixels

    def file_of(self, pixels: Pixels, behind: bytes) -> Descriptor | None:
        """Return the memory file that holds `pixels`, and `behind` after them.

        Return None if these pixels are not in such a file.
        """
        if self._file is None or pixels is not self._pixels:
            return None
        at = pixels.nbytes
        while behind:
            written = os.pwrite(self._file.number, behind, at)
            at, behind = at + written, behind[written:]
        return self._file
