"""Weights of a separable filter as tensor cores take them. Knows no filter.

The matrix that makes 16 neighbouring sums of `16 + 2 · reach` samples, in pieces of 16 × 32 bytes,
laid out as the lanes of a warp hold them: PTX's mma.m16n8k32, by kernels/mma.cuh.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NEAR, FAR = 8, 24
"""How far windows may reach to either side: filters/arithmetic/separable.cu has tiles for both."""

WIDEST = 104
"""The same of filters/blur/gaussian_two_pass_mma.cu, by sixteens."""

_ORDER = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]


def reach_of(radius: int) -> int | None:
    """The least of both; None where a window is too large for them."""
    return next((reach for reach in (NEAR, FAR) if radius <= reach), None)


def wide_reach_of(radius: int) -> int | None:
    """The least that filters/blur/gaussian_two_pass_mma.cu can take; None where that is not
    enough.
    """
    return -(-(radius + 8) // 16) * 16 - 8 if radius <= WIDEST else None


def separable_weights(
    across: NDArray[np.int64], down: NDArray[np.int64], reach: int, n_bytes: Sequence[int]
) -> bytes:
    """`weights` of `struct Separable`: symmetric ones of rows and of columns, below 256**n_bytes.

    The sums of rows lie in an order of their own, as rows do in the kernel.
    """
    rows = _pieces(across, n_bytes[0], reach, np.array(_ORDER))
    return rows + _pieces(down, n_bytes[1], reach, np.arange(16))


def _pieces(
    weights: NDArray[np.int64], n_bytes: int, reach: int, order: NDArray[np.int64]
) -> bytes:
    """For every 32 samples, byte and lane: 16 bytes, of row g or g + 8, sample 4t or 4t + 16 on."""
    assert weights.max() < 256**n_bytes
    padding = reach + 16 - len(weights) // 2
    line = np.pad(weights, padding)
    offsets = np.arange(2 * reach + 16) - order[:, None] + 16
    matrix = line[offsets][..., None] >> 8 * np.arange(n_bytes) & 255
    lanes = matrix.reshape(2, 8, -1, 2, 4, 4, n_bytes).transpose(2, 6, 1, 4, 3, 0, 5)
    laid: bytes = lanes.astype(np.uint8).tobytes()
    return laid
