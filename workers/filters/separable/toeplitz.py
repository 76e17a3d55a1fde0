"""Correlation down columns as matrix products, because BLAS is faster than any sliding filter.

A strip of `step` results is a banded Toeplitz matrix times the step + 2 · radius samples that the
strip reads: row i of the matrix holds the weights, shifted right by i. Callers choose the weights
and round the sums.
"""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.two_passes import Band, Place, Sums
from workers.kernels.items import Shape

ON_ONE_THREAD = 1 << 18
"""The largest number of multiplications in a product: OpenBLAS spreads larger ones over threads."""

SHORT, LONG = 8, 24
"""Samples in a strip, for weights of short and of long reach; measured."""

LONG_FROM = 16
"""The radius, in samples, from which strips are long."""

TILE_SAMPLES = 1 << 16
"""Samples in a tile: operands and sums of one tile stay in the cache of one core."""


def tiles(shape: Shape, across: int) -> Iterator[Place]:
    """Yield tiles of (H, W, n) with `across` columns and as many rows as `TILE_SAMPLES` allows.

    The number of rows is a multiple of the strip length.
    """
    height, width, count = shape
    across = min(across, width)
    down = max(1, TILE_SAMPLES // (across * count * LONG)) * LONG
    for top in range(0, height, down):
        for left in range(0, width, across):
            yield slice(top, min(top + down, height)), slice(left, min(left + across, width))


def around(part: slice, radius: int) -> tuple[slice, slice]:
    """Return the slice of a line that windows of `radius` samples to either side of `part` read,
    and `part` relative to that slice.
    """
    first = max(part.start - radius, 0)
    return slice(first, part.stop + radius), slice(part.start - first, part.stop - first)


def correlated_down(band: Band, weights: NDArray[np.float64], rows: slice | None = None) -> Sums:
    """Return weighted sums along H around the samples of (H, w, n) in `rows`, float64 (h, w, n).

    `weights` is float64 (2 · radius + 1,). The border mode is replicate. The sums are exact in any
    order if all partial sums are multiples, below 2**53, of one power of two.
    """
    rows = slice(0, len(band)) if rows is None else rows
    height, radius = rows.stop - rows.start, len(weights) // 2
    step = LONG if radius >= LONG_FROM else SHORT
    strips = -(-height // step)
    inside = band[max(rows.start - radius, 0) : rows.stop + radius]
    samples, above = inside.reshape(len(inside), -1), max(radius - rows.start, 0)
    padded = np.empty((strips * step + 2 * radius, samples.shape[1]))
    # The copies of the last sample also fill up the last strip, so that all strips are one product;
    # the surplus sums are cut off below.
    padded[:above], padded[above + len(inside) :] = samples[0], samples[-1]
    padded[above : above + len(inside)] = samples
    sums = _products(_matrix(weights, step), padded, strips)
    return sums.reshape(-1, padded.shape[1])[:height].reshape(height, *band.shape[1:])


def _matrix(weights: NDArray[np.float64], step: int) -> Sums:
    """Return the banded Toeplitz matrix, float64 (step, step + 2 · radius)."""
    matrix = np.zeros((step, step - 1 + len(weights)))
    for row in range(step):
        matrix[row, row : row + len(weights)] = weights
    return matrix


def _products(matrix: Sums, padded: Sums, strips: int) -> Sums:
    """Return the matrix times the samples of every strip, float64 (strips, step, samples).

    The strips overlap, so they are a strided view of `padded`, not a copy.
    """
    (step, seen), breadth, (down, across) = matrix.shape, padded.shape[1], padded.strides
    # A view of memory that `padded` owns: row r of strip s is row s · step + r of `padded`. It may
    # only be read, because its strips share rows.
    windows: Sums = np.ndarray(
        (strips, seen, breadth), np.float64, padded, 0, (step * down, down, across)
    )
    sums, most = np.empty((strips, step, breadth)), ON_ONE_THREAD // matrix.size
    for start in range(0, breadth, max(1, most)):
        part = slice(start, start + max(1, most))
        np.matmul(matrix, windows[:, :, part], out=sums[:, :, part])
    return sums


def transposed(band: Band) -> Band:
    """Return (h, w, n) as (w, h, n), C-contiguous."""
    return np.asarray(cv2.transpose(band), band.dtype).reshape(*band.shape[1::-1], -1)
