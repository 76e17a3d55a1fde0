"""Give the memory of Pillow's large pictures back to the system row by row, as they are converted.

Pillow keeps four bytes for each pixel in colour until the picture is closed. Beside them the
converted pixels take three more, so a picture of 49 megapixels would take 343 MB at its end. Rows
that have been converted are not needed any more, so their pages are released, and both together
never take much more than Pillow's picture alone.
"""

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from PIL import Image as PillowImage

from models.codec.rows import boxes
from models.domain.image import Pixels

LARGE = 8 << 20
"""Pixels of a picture from which this is done: its 32 MB are a mapping of their own, which the
allocator gives back at the end in any case. Smaller ones stay as quick as they were."""

_STRIPE = 1 << 20
"""Pixels that are copied at a time."""

_PIXEL = 4
"""Bytes of a pixel in every mode of Pillow with several channels."""


class _Array(ctypes.Structure):
    """`struct ArrowArray` of the Arrow C data interface, in which Pillow shows its memory."""


_Array._fields_ = (
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset")),
    *((name, ctypes.c_int64) for name in ("n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private_data")),
)


@contextmanager
def in_one_block(pixels: int) -> Iterator[None]:
    """Let Pillow put pictures of this size into a single block of memory, which it can show.

    The switch is a global of Pillow's. Where threads overlap, the picture of another thread lands
    in a single block too, or this picture does not: then nothing is released, and the pixels are
    the same.
    """
    if pixels < LARGE:
        yield
        return
    core: Any = cast(Any, PillowImage).core
    core.set_use_block_allocator(True)
    try:
        yield
    finally:
        core.set_use_block_allocator(False)


def picture(
    pixels: Pixels, taken: Callable[[Pixels], None], *, coloured: bool = False
) -> PillowImage.Image:
    """Return pixels as a picture of Pillow; `taken` is called with rows that are needed no more.

    Pillow copies pixels of several channels, so a large image is copied stripe by stripe.
    `coloured`: a large grey image becomes RGB meanwhile, of which an encoder would make a copy.
    """
    height, width, channels = pixels.shape
    shown = pixels[..., 0] if channels == 1 else pixels
    if width * height < LARGE:
        return PillowImage.fromarray(shown)
    mode = {1: "RGB" if coloured else "L", 3: "RGB", 4: "RGBA"}[channels]
    whole = PillowImage.new(mode, (width, height), None)
    for left, top, right, bottom in boxes(width, height, _STRIPE):
        whole.paste(PillowImage.fromarray(shown[top:bottom, left:right]), (left, top))
        taken(pixels[top:bottom, left:right])
    return whole


class ReleasedRows:
    """The memory of a picture, of which pixels can be released in the order they are stored in."""

    def __init__(self, image: PillowImage.Image) -> None:
        width, height = image.size
        large = width * height >= LARGE and len(image.getbands()) > 1
        self._address = _address(image) if large else None

    def release(self, pixels: int) -> None:
        """Give the whole pages of the first `pixels` pixels back, which are worthless then."""
        if self._address is None:
            return
        first = -(-self._address // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (self._address + pixels * _PIXEL) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            # Advice that the kernel does not take leaves the memory as it is.
            _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _DONTNEED)


def _address(image: PillowImage.Image) -> int | None:
    """Return where the pixels of a picture in several channels begin; None for several blocks."""
    try:
        _schema, shown = cast(Any, image).__arrow_c_array__()
    except ValueError:
        return None
    pixels = _Array.from_address(_pointer_of(shown, b"arrow_array"))
    samples = pixels.children[0].contents
    whole = image.width * image.height
    assert (pixels.length, samples.length) == (whole, _PIXEL * whole)
    return cast(int, samples.buffers[1])


_DONTNEED = getattr(mmap, "MADV_DONTNEED", 4)
_libc = ctypes.CDLL(None)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
