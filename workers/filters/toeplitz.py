"""Correlation down columns as products of matrices: BLAS multiplies faster than any filter slides.

A strip of a column is a banded Toeplitz matrix, whose rows are the weights, each one further on,
times what the strip sees. Knows nothing of what weights mean, or of rounding.
"""

import cv2
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from workers.filters.separable import Band, Sums

ON_ONE_THREAD = 1 << 18
"""Multiplications in a product, at most: OpenBLAS spreads larger ones over threads."""

SHORT, LONG = 8, 24
"""Samples in a strip: how many are best depends on how far the weights reach."""

LONG_FROM = 16
"""A reach from which strips are long."""


def correlated_down(band: Band, weights: NDArray[np.float64]) -> Sums:
    """The weighted sums around every sample of (H, w, n), along H; border: replicate.

    Exact in any order, if all partial sums are multiples below 2**53 of one power of two.
    """
    height, radius = len(band), len(weights) // 2
    step = LONG if radius >= LONG_FROM else SHORT
    strips, seen = -(-height // step), step + 2 * radius
    padded = np.empty((strips * step + 2 * radius, band[0].size))
    inside = band.reshape(height, -1)
    padded[:radius], padded[radius + height :] = inside[0], inside[-1]
    padded[radius : radius + height] = inside
    down, across = padded.strides
    windows = as_strided(
        padded, (strips, seen, padded.shape[1]), (step * down, down, across), writeable=False
    )
    matrix = np.zeros((step, seen))
    for row in range(step):
        matrix[row, row : row + len(weights)] = weights
    sums, most = np.empty((strips, step, padded.shape[1])), max(1, ON_ONE_THREAD // matrix.size)
    for start in range(0, padded.shape[1], most):
        part = slice(start, start + most)
        np.matmul(matrix, windows[:, :, part], out=sums[:, :, part])
    return sums.reshape(-1, padded.shape[1])[:height].reshape(band.shape)


def transposed(band: Band) -> Band:
    """(h, w, n) to (w, h, n)."""
    return np.asarray(cv2.transpose(band), band.dtype).reshape(*band.shape[1::-1], -1)
