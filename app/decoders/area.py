"""Shared area: memory that the service and one decoder process have mapped for its whole life.

A file goes in and its pixels come out through the same bytes. Ordinary images therefore need no
memory file of their own, whose creation, page faults, mapping and descriptors take a millisecond
of CPU time for a photo of 500 × 375 pixels; two copies take a tenth of that.

What reuse may not do, and how that is ensured:

- No process reads what another process has decoded: an area belongs to one process, is made of
  fresh memory (zeros) for it, and is never given to another one.
- No image reads what a former image of the same process left here: before the service puts a file
  in, it overwrites all other bytes that were used with zeros.
- No process changes pixels that the service has accepted: `take` copies them out. A lease without
  a copy would save 0.05 ms, but a process that a later file has taken over could still write there.
- No process takes the memory away from the service: its size is sealed.
"""

import fcntl
import os

import numpy as np
from numpy.typing import NDArray

from app.decoders.memory import Mapping

SIZE = 8 << 20
"""Bytes of an area, of which only those that were used take memory. 6 MB are the pixels of an
ordinary photo of 2 megapixels; larger files and images go through memory files of their own."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedArea:
    """One end of the area; `descriptor` is its memory file, and may be closed afterwards."""

    def __init__(self, descriptor: int) -> None:
        self._mapping = Mapping(descriptor, SIZE, populate=False)
        self._bytes: NDArray[np.uint8] = np.asarray(self._mapping)
        self._memory = self._bytes.data
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes from the start that this end has written or taken, and that may be other than 0."""
        return self._used

    def put(self, *parts: bytes | memoryview) -> None:
        """Write `parts` one after the other, and zeros over what was used behind them."""
        end = 0
        for part in parts:
            start, end = end, end + len(part)
            self._memory[start:end] = part
        # Only what was used can differ from zero, so an image pays for clearing what the one before
        # it used, not for the whole area.
        self._bytes[end : self._used] = 0
        self._used = end

    def take(self, size: int) -> NDArray[np.uint8]:
        """Copy the first `size` bytes out; raises ValueError for more than the area has."""
        return self.view(size).copy()

    def contents(self, size: int) -> bytes:
        """Return the first `size` bytes; raises ValueError for more than the area has."""
        return self.view(size).tobytes()

    def view(self, size: int) -> NDArray[np.uint8]:
        """Return the first `size` bytes themselves, for writing; raises ValueError if too many."""
        if not 0 <= size <= SIZE:
            raise ValueError(f"the shared area has {SIZE} bytes, not {size}")
        self._used = max(self._used, size)
        return self._bytes[:size]

    def release(self) -> None:
        """Give the memory back to the system, on both sides; the area is zeros afterwards."""
        self._mapping.release()
        self._used = 0


def new_area() -> tuple[SharedArea, int]:
    """Make an area of fresh memory, and the descriptor by which a process can map it."""
    descriptor = os.memfd_create("area", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, SIZE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return SharedArea(descriptor), descriptor
    except BaseException:
        os.close(descriptor)
        raise
