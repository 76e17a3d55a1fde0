"""Memory files without a name (memfd_create(2)), by which bytes pass between processes.

They need no /dev/shm, leave no name behind, and end with their last user.
"""

import ctypes
import fcntl
import mmap
import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOVED = 8 << 20
"""Bytes that are moved at a time."""

_POPULATE = 0x8000  # MAP_POPULATE: one call instead of a page fault every 4 KiB


def memory_file(*parts: bytes | memoryview) -> int:
    """Return a descriptor of a new memory file that holds `parts` one after the other."""
    descriptor = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            _write(descriptor, part)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def moved_to_file(pixels: NDArray[np.uint8], behind: bytes = b"") -> int:
    """Return a descriptor of a new memory file of `pixels`, and of the bytes `behind` them.

    The pixels lose their memory meanwhile, piece by piece, so that both together never take much
    more than one of them. They must be C-contiguous, and needed by nothing else.
    """
    descriptor = memory_file()
    flat = pixels.reshape(-1)
    try:
        for start in range(0, len(flat), _MOVED):
            piece = flat[start : start + _MOVED]
            _write(descriptor, piece.data)
            release(piece)
        _write(descriptor, behind)
    except BaseException:
        os.close(descriptor)
        raise
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


def contents(descriptor: int, size: int) -> bytes:
    """Read the first `size` bytes of a file, whatever its position is."""
    return os.pread(descriptor, size, 0)


def contents_of_answer(descriptor: int, size: int) -> bytes:
    """Read the first `size` bytes of a file that a decoder process made; raises ValueError for a
    shorter one.
    """
    if os.fstat(descriptor).st_size < size:  # or any size would be allocated
        raise ValueError(f"the file has fewer than {size} bytes")
    return contents(descriptor, size)


def mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
    """Map the first `size` bytes of a memory file, shared with its other users; nothing is copied.

    The file is sealed first: the process that made it could otherwise shorten it, and reading the
    missing pages would end the service with SIGBUS. Raises ValueError for a file that is too short,
    and OSError.
    """
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    if os.fstat(descriptor).st_size < size:
        raise ValueError(f"the memory file has fewer than {size} bytes")
    return np.asarray(Mapping(descriptor, size, populate=True))


class Mapping:
    """Shared mapping of the first `size` bytes of a memory file, as a numpy array sees it.

    It ends with the last array that refers to it. Python's own `mmap` keeps a descriptor for each
    mapping (until 3.13); hundreds of images in flight would take them away from connections.
    Raises OSError.
    """

    def __init__(self, descriptor: int, size: int, *, populate: bool) -> None:
        self._size = size
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)
        address = _libc().mmap(None, size, protection, flags, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "the memory of a decoder process cannot be mapped")
        self._address = address

    def release(self) -> None:
        """Free the memory behind the mapping for all its users; they read zeros afterwards."""
        if _libc().madvise(self._address, self._size, mmap.MADV_REMOVE):
            raise OSError(ctypes.get_errno(), "the memory of a decoder process cannot be freed")

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
