"""A linear filter as two passes, rows then columns, over planes of integers.

Knows nothing of weights, alpha or rounding; the passes and the caller do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.tiling import bands

Planes = NDArray[np.unsignedinteger[Any]]
"""Uint8 or uint16 planes (H, W, n): colours, or colours times alpha."""

Sums = NDArray[np.float64]
"""Float64 that holds integers below 2**53, or such parts of a power of two: their sums are exact
in any order."""

Place = tuple[slice, slice]
"""Rows and columns of a piece of an image."""

Band = NDArray[np.integer[Any]]
"""A piece of the planes, or of what the first pass made of them."""


def two_passes(
    planes: Planes,
    rows: Callable[[Band], Band | Sums],
    columns: Callable[[Band], Sums],
) -> Iterator[tuple[Place, Sums]]:
    """Bands of columns, in order, and the filtered planes there: (H, band, n).

    Only the whole parts of the results of `rows` are held whole.
    """
    height, width, count = planes.shape
    source = np.ascontiguousarray(planes)
    held = np.empty(planes.shape, np.int32)
    for band in bands(height, width * count):
        held[band] = rows(source[band])
    for band in bands(width, height * count):
        yield (slice(None), band), columns(held[:, band])
