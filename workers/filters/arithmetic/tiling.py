"""Cut images into pieces that fit a cache, which bounds the memory of a filter for any image
size.
"""

from collections.abc import Iterator

from models.domain.image import Pixels

BAND_SAMPLES = 1 << 18
"""Samples in a piece: 2 MiB as float64. Measured: filters on whole images took 20 times their
size.
"""


STRIP_SAMPLES = 1 << 16
"""Samples in a piece for steps of few instructions, which need a closer cache; measured as well."""
COUNTED = 1 << 20
"""Samples of a piece whose levels are counted."""


def bands(length: int, breadth: int, samples: int = BAND_SAMPLES) -> Iterator[slice]:
    """Yield slices that cover `length` rows (or columns) of `breadth` samples each, in order."""
    step = max(1, samples // breadth)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def pieces(pixels: Pixels, samples: int = BAND_SAMPLES) -> Iterator[Pixels]:
    """Yield all pixels of uint8 (H, W, C) in order, in pieces (1, n, C) of about `samples` samples.

    They do not depend on the length of a row. The pieces of a contiguous image are views.
    """
    line = pixels.reshape(1, -1, pixels.shape[2])
    for piece in bands(line.shape[1], line.shape[2], samples):
        yield line[:, piece]
