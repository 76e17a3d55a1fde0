"""A linear filter as two passes, rows then columns, over planes of integers.

Knows nothing of weights, alpha or rounding; the passes and the caller do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.bands import bands

Planes = NDArray[np.unsignedinteger[Any]]
"""Uint8 or uint16 planes (H, W, n): colours, or colours times alpha."""

Sums = NDArray[np.float64]
"""Float64 that holds integers below 2**53, so every sum over them is exact in any order."""

Place = tuple[slice, slice]
"""Rows and columns of a piece of an image."""

Band = NDArray[np.unsignedinteger[Any] | np.floating[Any]]
"""A piece of the planes, or of what the first pass made of them."""

Pass = Callable[[Band], Sums]
"""One pass over (h, w, n) along one axis; the first one's results are below 2**32."""


def two_passes(planes: Planes, rows: Pass, columns: Pass) -> Iterator[tuple[Place, Sums]]:
    """Bands of columns, in order, and the filtered planes there: (H, band, n).

    Only the result of `rows` is held whole, in 32 bits a sample.
    """
    height, width, count = planes.shape
    source = np.ascontiguousarray(planes)
    middle = np.empty(planes.shape, np.uint32)
    for band in bands(height, width * count):
        middle[band] = rows(source[band])
    for band in bands(width, height * count):
        yield (slice(None), band), columns(middle[:, band].astype(np.float64))
