"""Gaussian weights and sums, banded matrices, and separable kernels; it contains no filters.

`separable.cuh` draws how a GPU computes both passes at once.
"""

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.sums import Band, Place, Planes, Sums
from workers.kernels.items import Pass, Shape

# Weights of separable filters, laid out for the matrix instructions of tensor cores.
#
# A banded matrix turns 16 + 2 · reach samples of a line into 16 neighbouring sums. It is cut into
# pieces of 16 × 32 bytes, each laid out as the 32 lanes of a warp hold operand A of PTX's
# mma.m16n8k32 (PTX ISA, section "Matrix fragments for mma.m16n8k32"); headers/mma.cuh reads them.

NEAR, FAR = 8, 24
"""How far a window may reach to either side, in pixels, for the two tile sizes of
separable/separable.cuh.
"""

WIDEST = 104
"""The same limit for blur/gaussian_two_pass_mma.cu, whose reach is a multiple of 16 plus 8."""

_ORDER = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
"""The order in which sums of rows lie, so that results of one product are the operand of the
next.
"""


def reach_of(radius: int) -> int | None:
    """Return the smallest of both reaches that covers a radius in pixels, or None."""
    return next((reach for reach in (NEAR, FAR) if radius <= reach), None)


def separable_weights(
    across: NDArray[np.int64], down: NDArray[np.int64], reach: int, n_bytes: Sequence[int]
) -> bytes:
    """Return `weights` of `struct Separable`: pieces for rows, then pieces for columns.

    `across` and `down` are symmetric int64 weights below 256**n_bytes. The sums of rows lie in
    `_ORDER`, as the kernel keeps rows in registers.
    """
    rows = _pieces(across, n_bytes[0], reach, np.array(_ORDER))
    return rows + _pieces(down, n_bytes[1], reach, np.arange(16))


def _pieces(
    weights: NDArray[np.int64], n_bytes: int, reach: int, order: NDArray[np.int64]
) -> bytes:
    """Return the pieces: for every 32 samples, byte of a weight and lane, 16 bytes.

    Lane 4g + t holds row g or g + 8, from sample 4t or 4t + 16 on.
    """
    assert weights.max() < 256**n_bytes
    padding = reach + 16 - len(weights) // 2
    line = np.pad(weights, padding)
    offsets = np.arange(2 * reach + 16) - order[:, None] + 16
    # Tensor cores multiply bytes, so each weight is cut into its bytes; the kernel shifts the sums
    # of each byte to their place.
    matrix = line[offsets][..., None] >> 8 * np.arange(n_bytes) & 255
    lanes = matrix.reshape(2, 8, -1, 2, 4, 4, n_bytes).transpose(2, 6, 1, 4, 3, 0, 5)
    laid: bytes = lanes.astype(np.uint8).tobytes()
    return laid


# Gaussian weights and sums in fixed point, which give the same bytes on every device.
#
# The method:
#
# 1. The window is that of scipy.ndimage.gaussian_filter with truncate=4: radius int(4·sigma + 0.5).
# 2. The horizontal weights are integers in Q22, so they sum to exactly 2**22.
# 3. The first pass sums along rows and rounds to 8.8 fixed point: 8 bits before the point, 8
#    behind.
# 4. The vertical weights are Q16, so results have 24 fractional bits: 8 + 16.
# 5. All products and sums are integers below 2**53: float64 holds them, whatever the order.
# 6. Hence BLAS (Toeplitz matrices), tensor cores (byte products) and plain loops agree to the last
#    bit.
# 7. The result is rounded half up; together with step 3 that makes two roundings.
# 8. Weights are rounded so that their running sums are right (`quantised`): rounding each by itself
#    (largest remainder) was off by a level on 0.4 % of samples at sigma 100.
# 9. Weights are symmetric, so kernels store half of them.
# 10. With alpha the planes are 16 bits (colour · alpha), and the same passes apply.

# Correlation down columns as matrix products, because BLAS is faster than any sliding filter. A
# strip of `step` results is a banded Toeplitz matrix times the step + 2 · radius samples that the
# strip reads: row i of the matrix holds the weights, shifted right by i. Callers choose the
# weights and round the sums.

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


def with_margins(part: slice, radius: int) -> tuple[slice, slice]:
    """Return a part of a line with `radius` samples on each side, and its place in that slice."""
    first = max(part.start - radius, 0)
    return slice(first, part.stop + radius), slice(part.start - first, part.stop - first)


def correlated_down(band: Band, weights: NDArray[np.float64], rows: slice | None = None) -> Sums:
    """Return weighted sums along H around the samples of (H, w, n) in `rows`, float64 (h, w, n).

    `weights` is float64 (2 · radius + 1,). The border mode is replicate. The sums are exact in any
    order if all partial sums are multiples, below 2**53, of the same power of two.
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


ROW_BITS, COLUMN_BITS, MIDDLE_BITS = 22, 16, 8
SUM_BITS = COLUMN_BITS + MIDDLE_BITS

ACROSS, NARROW = 960, 120
"""The width of a tile in pixels, for the pass along rows and for the pass along columns."""

_SMALLEST_IN_TILES = 0.25

ROWS, COLUMNS = Pass("gaussian_rows"), Pass("gaussian_columns")
"""The two GPU passes for windows of any size; their data are `device_taps`."""


def taps(sigma: float, bits: int) -> NDArray[np.int64]:
    """Return 2·r + 1 integer weights, int64, with r = int(4·sigma + 0.5); they sum to 2**bits.

    `sigma` is in pixels. The window is that of scipy.ndimage.gaussian_filter with truncate=4.
    """
    radius = int(4 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    exact: NDArray[np.float64] = np.exp(-0.5 * (offsets / sigma) ** 2)
    return quantised(exact, bits)


def reach(sigma_x: float, sigma_y: float) -> int | None:
    """Return how far, in pixels, tiles of the single-pass kernel of `tile_taps` reach, or None for
    a window that is too large.
    """
    return reach_of(_radius(sigma_x, sigma_y))


def wide_reach(sigma_x: float, sigma_y: float) -> int | None:
    """Return the same for the two passes of gaussian_two_pass_mma.cu, for larger windows."""
    radius = _radius(sigma_x, sigma_y)
    return -(-(radius + 8) // 16) * 16 - 8 if radius <= WIDEST else None


def _radius(sigma_x: float, sigma_y: float) -> int:
    """Return the radius of the window; beyond all reaches if a weight of 1 fits no two bytes."""
    fits = min(sigma_x, sigma_y) >= _SMALLEST_IN_TILES
    return int(4 * max(sigma_x, sigma_y) + 0.5) if fits else WIDEST + 1


@functools.lru_cache(256)
def tile_taps(sigma_x: float, sigma_y: float, amount: int = 0, threshold: int = 0) -> bytes:
    """Return `struct Separable` for `Blurred` and `Unsharp` of separable/separable_kernels.cu, and
    for blur/gaussian_two_pass_mma.cu.

    `amount` (Q16) and `threshold` (levels) belong to an unsharp mask. Weights of rows are shifted
    up to Q24, so that the half of a sum which is kept consists of whole bytes.
    """
    across, down = taps(sigma_x, ROW_BITS) << 24 - ROW_BITS, taps(sigma_y, COLUMN_BITS)
    far = reach(sigma_x, sigma_y) or wide_reach(sigma_x, sigma_y)
    assert far is not None
    header = struct.pack("<3I4x", amount, threshold, (far + 8) // 16)
    return header + separable_weights(across, down, far, (3, 2))


def quantised(exact: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return symmetric weights, odd in number, as int64 that sum to 2**bits.

    Running sums of the left half are rounded and their differences are the weights, so the error of
    any partial sum stays below a unit; the middle weight takes the rest.
    """
    radius = len(exact) // 2
    exact = exact * ((1 << bits) / exact.sum())
    half = np.diff(np.floor(np.cumsum(exact[:radius]) + 0.5), prepend=0).astype(np.int64)
    weights: NDArray[np.int64] = np.concatenate((half, [0], half[::-1]))
    weights[radius] = (1 << bits) - weights.sum()
    return weights


def blurred(planes: Planes, sigma_x: float, sigma_y: float) -> Iterator[tuple[Place, Sums]]:
    """Yield tiles of integer planes (H, W, n) and their Gaussian sums, float64 in units of 2**-24.

    The border mode is replicate.
    """
    return fixed_point_passes(planes, taps(sigma_x, ROW_BITS), taps(sigma_y, COLUMN_BITS), 0)


def blurred_levels(planes: Planes, sigma_x: float, sigma_y: float) -> Iterator[tuple[Place, Sums]]:
    """Yield the same in levels plus a half: the integer part is the rounded result."""
    down = taps(sigma_y, COLUMN_BITS) * 2.0**-SUM_BITS
    return fixed_point_passes(planes, taps(sigma_x, ROW_BITS), down, 1 << (MIDDLE_BITS - 1))


def fixed_point_passes(
    planes: Planes, across: NDArray[Any], down: NDArray[Any], more: int
) -> Iterator[tuple[Place, Sums]]:
    """Yield the sums of passes along rows, with weights in units of 2**-22, and down columns.

    `more` is added to the intermediate values, in units of 2**-8. As the weights sum to 1, the
    result grows by the same amount. Scaling by a power of two is exact.
    """
    held = _rows(planes, across, more)
    for place in tiles(planes.shape, NARROW):
        rows, columns = place
        seen, inside = with_margins(rows, len(down) // 2)
        yield place, correlated_down(held[seen, columns], down * 1.0, inside)


def _rows(planes: Planes, across: NDArray[Any], more: int) -> Band:
    """Return the first pass, uint16 or int32 (H, W, n) in units of 2**-8, plus `more`."""
    scaled = across * 2.0 ** (MIDDLE_BITS - ROW_BITS)
    held = np.empty(planes.shape, np.uint16 if planes.dtype == np.uint8 else np.int32)
    for rows, columns in tiles(planes.shape, ACROSS):
        seen, inside = with_margins(columns, len(across) // 2)
        part = planes[rows, seen]
        turned = np.asarray(cv2.transpose(part), part.dtype).reshape(*part.shape[1::-1], -1)
        sums = correlated_down(turned, scaled, inside)
        # The conversion to integers truncates; together with the half it rounds half up, because no
        # sum is negative.
        sums += 0.5 + more
        cv2.transpose(sums.astype(held.dtype), held[rows, columns])
    return held


def device_taps(sigma_x: float, sigma_y: float, *more: int) -> bytes:
    """Return `device_weights` of Gaussians."""
    return device_weights(taps(sigma_x, ROW_BITS), taps(sigma_y, COLUMN_BITS), *more)


def device_weights(
    across: NDArray[np.int64],
    down: NDArray[np.int64],
    premultiplied: int = 0,
    amount: int = 0,
    threshold: int = 0,
) -> bytes:
    """Return `struct Gaussian` of gaussian_rows.cuh for symmetric weights: half of them, from the
    centre outwards, in fours.

    `amount` (Q16) and `threshold` (levels) belong to an unsharp mask.
    """
    outwards = [np.append(w[len(w) // 2 + 1 :], [0] * (-(len(w) // 2) % 4)) for w in (across, down)]
    centres = (int(w[len(w) // 2]) for w in (across, down))
    sizes = (len(w) for w in outwards)
    header = struct.pack("<2i2Ii2I4x", *sizes, *centres, premultiplied, amount, threshold)
    return header + np.concatenate(outwards).astype("<u4").tobytes()


def half_up(sums: Sums, bits: int) -> Sums:
    """Return floor(sums / 2**bits + 0.5) as float64: (sums + 2**(bits-1)) >> bits in integers."""
    rounded = sums + (1 << (bits - 1))
    rounded *= 2.0**-bits
    return np.floor(rounded, out=rounded)
