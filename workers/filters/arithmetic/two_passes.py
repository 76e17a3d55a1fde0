"""Two passes of a separable linear filter, rows then columns, over planes of integers.

The callers define weights, alpha and rounding.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.tiling import bands

Planes = NDArray[np.unsignedinteger[Any]]
"""Uint8 or uint16 planes (H, W, n): colours, or colours times alpha."""

Sums = NDArray[np.float64]
"""Float64 that holds integers below 2**53, or multiples of one power of two with as many bits:
their sums are exact in any order.
"""

Place = tuple[slice, slice]
"""The rows and the columns of a piece of an image."""

Band = NDArray[np.integer[Any]]
"""A piece of the planes, or of the result of the first pass."""


def two_passes(
    planes: Planes,
    rows: Callable[[Band], Band | Sums],
    columns: Callable[[Band], Sums],
) -> Iterator[tuple[Place, Sums]]:
    """Yield bands of columns in order, with the filtered planes there: float64 (H, band, n).

    Between the passes the results of `rows` are truncated to int32.
    """
    height, width, count = planes.shape
    source = np.ascontiguousarray(planes)
    held = np.empty(planes.shape, np.int32)
    for band in bands(height, width * count):
        held[band] = rows(source[band])
    for band in bands(width, height * count):
        yield (slice(None), band), columns(held[:, band])
