"""Make the array for the pixels of a large image in the memory file that carries them away.

The decoder then needs no second copy of them, and no process writes them a second time.
"""

import math
import os

import numpy as np

from app.decoders.area import SIZE as AREA_SIZE
from app.decoders.memory import Mapping
from models.domain.image import Pixels

POPULATED = 32 << 20
"""Largest array, in bytes, whose pages are made at once, which takes half of the time of faults.

Those of larger ones come as rows are written: Pillow's picture shrinks meanwhile.
"""


class NewPixels:
    """Maker of the arrays of one image; the codec fills the one that it asked for last."""

    def __init__(self) -> None:
        self._pixels: Pixels | None = None
        self._descriptor: int | None = None

    def __call__(self, shape: tuple[int, int, int]) -> Pixels:
        """Return an array of `shape`, in a new memory file if it does not fit the shared area.

        Raises MemoryError.
        """
        self.close()
        size = math.prod(shape)
        if size <= AREA_SIZE:
            return np.empty(shape, np.uint8)
        try:
            self._descriptor = os.memfd_create("image", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._descriptor, size)
            flat = np.asarray(Mapping(self._descriptor, size, populate=size <= POPULATED))
        except OSError as error:
            raise MemoryError("there is no memory for the pixels") from error
        self._pixels = flat.reshape(shape)
        return self._pixels

    def file_of(self, pixels: Pixels, behind: bytes) -> int | None:
        """Return the memory file that holds `pixels`, and `behind` after them.

        It stays open until `close`. Return None if these pixels are not in such a file.
        """
        if self._descriptor is None or pixels is not self._pixels:
            return None
        at = pixels.nbytes
        while behind:
            written = os.pwrite(self._descriptor, behind, at)
            at, behind = at + written, behind[written:]
        return self._descriptor

    def close(self) -> None:
        """Close the file and drop the array; the receiver of the file keeps its memory."""
        self._pixels = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close
