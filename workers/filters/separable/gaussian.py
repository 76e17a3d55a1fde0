"""Gaussian weights and sums in fixed point, which give the same bytes on every device.

The method:

1. The window is that of scipy.ndimage.gaussian_filter with truncate=4: radius int(4·sigma + 0.5).
2. The horizontal weights are integers in Q22, so they sum to exactly 2**22.
3. The first pass sums along rows and rounds to 8.8 fixed point: 8 bits before the point, 8 behind.
4. The vertical weights are Q16, so results have 24 fractional bits: 8 + 16.
5. All products and sums are integers below 2**53: float64 holds them, whatever the order.
6. Hence BLAS (toeplitz.py), tensor cores (byte products) and plain loops agree to the last bit.
7. The result is rounded half up; together with step 3 that makes two roundings.
8. Weights are rounded so that their running sums are right (`quantised`): rounding each by itself
   (largest remainder) was off by one level on 0.4 % of samples at sigma 100.
9. Weights are symmetric, so kernels store half of them.
10. With alpha the planes are 16 bits (colour · alpha), and the same passes apply.
"""

import functools
import struct
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.two_passes import Band, Place, Planes, Sums
from workers.filters.separable.mma_fragments import reach_of, separable_weights, wide_reach_of
from workers.filters.separable.toeplitz import around, correlated_down, tiles, transposed
from workers.kernels.items import Pass

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
    """Return how far, in pixels, tiles of the one-pass kernel of `tile_taps` reach, or None.

    None means that the window is too large, or that sigma is so small that the centre weighs one,
    which two bytes cannot hold.
    """
    return reach_of(_radius(sigma_x, sigma_y)) if _in_bytes(sigma_x, sigma_y) else None


def wide_reach(sigma_x: float, sigma_y: float) -> int | None:
    """Return the same for the two passes of blur/gaussian_two_pass_mma.cu, which take larger
    windows.
    """
    return wide_reach_of(_radius(sigma_x, sigma_y)) if _in_bytes(sigma_x, sigma_y) else None


def _in_bytes(sigma_x: float, sigma_y: float) -> bool:
    return min(sigma_x, sigma_y) >= _SMALLEST_IN_TILES


def _radius(sigma_x: float, sigma_y: float) -> int:
    return int(4 * max(sigma_x, sigma_y) + 0.5)


@functools.lru_cache(256)
def tile_taps(sigma_x: float, sigma_y: float, amount: int = 0, threshold: int = 0) -> bytes:
    """Return `struct Separable` for `Blurred` and `Unsharp` of separable/separable_kernels.cu, and
    for blur/gaussian_two_pass_mma.cu.

    `amount` (Q16) and `threshold` (levels) are those of an unsharp mask. Weights of rows are
    shifted up to Q24, so that the half of a sum which is kept consists of whole bytes.
    """
    across, down = taps(sigma_x, ROW_BITS) << 24 - ROW_BITS, taps(sigma_y, COLUMN_BITS)
    far = reach(sigma_x, sigma_y) or wide_reach(sigma_x, sigma_y)
    assert far is not None
    header = struct.pack("<3I4x", amount, threshold, (far + 8) // 16)
    return header + separable_weights(across, down, far, (3, 2))


def quantised(exact: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return symmetric weights, odd in number, as int64 that sum to 2**bits.

    Running sums of the left half are rounded and their differences are the weights, so the error of
    any partial sum stays below one unit; the middle weight takes what is left.
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
    return _two_passes(planes, taps(sigma_x, ROW_BITS), taps(sigma_y, COLUMN_BITS), 0)


def blurred_levels(planes: Planes, sigma_x: float, sigma_y: float) -> Iterator[tuple[Place, Sums]]:
    """Yield the same in levels plus one half: the integer part is the rounded result."""
    down = taps(sigma_y, COLUMN_BITS) * 2.0**-SUM_BITS
    return _two_passes(planes, taps(sigma_x, ROW_BITS), down, 1 << (MIDDLE_BITS - 1))


def _two_passes(
    planes: Planes, across: NDArray[Any], down: NDArray[Any], more: int
) -> Iterator[tuple[Place, Sums]]:
    """Yield the sums of both passes; `more` is added to the intermediate values.

    As the weights sum to one, the result grows by the same amount. Scaling by a power of two is
    exact.
    """
    held = _rows(planes, across, more)
    for place in tiles(planes.shape, NARROW):
        rows, columns = place
        seen, inside = around(rows, len(down) // 2)
        yield place, correlated_down(held[seen, columns], down * 1.0, inside)


def _rows(planes: Planes, across: NDArray[Any], more: int) -> Band:
    """Return the first pass, uint16 or int32 (H, W, n) in units of 2**-8, plus `more`."""
    scaled = across * 2.0 ** (MIDDLE_BITS - ROW_BITS)
    held = np.empty(planes.shape, np.uint16 if planes.dtype == np.uint8 else np.int32)
    for rows, columns in tiles(planes.shape, ACROSS):
        seen, inside = around(columns, len(across) // 2)
        sums = correlated_down(transposed(planes[rows, seen]), scaled, inside)
        # The conversion to integers truncates; together with the half it rounds half up, because no
        # sum is negative.
        sums += 0.5 + more
        cv2.transpose(sums.astype(held.dtype), held[rows, columns])
    return held


def device_taps(
    sigma_x: float, sigma_y: float, *, premultiplied: bool, amount: int = 0, threshold: int = 0
) -> bytes:
    """Return `struct Gaussian` of gaussian_rows.cuh: half of the weights, from the centre outwards,
    in fours.

    `amount` (Q16) and `threshold` (levels) are those of an unsharp mask.
    """
    across, down = taps(sigma_x, ROW_BITS), taps(sigma_y, COLUMN_BITS)
    return device_weights(
        across, down, premultiplied=premultiplied, amount=amount, threshold=threshold
    )


def device_weights(
    across: NDArray[np.int64],
    down: NDArray[np.int64],
    *,
    premultiplied: bool = False,
    amount: int = 0,
    threshold: int = 0,
) -> bytes:
    """Return `struct Gaussian` for any symmetric weights, int64."""
    outwards = [np.append(w[len(w) // 2 + 1 :], [0] * (-(len(w) // 2) % 4)) for w in (across, down)]
    centres = (int(w[len(w) // 2]) for w in (across, down))
    sizes = (len(w) for w in outwards)
    header = struct.pack("<2i2Ii2I4x", *sizes, *centres, premultiplied, amount, threshold)
    return header + np.concatenate(outwards).astype("<u4").tobytes()


def to_byte(sums: Sums) -> Sums:
    """Round sums in units of 2**-24 half up to 0…255; weights that sum to one cannot leave that
    range.
    """
    return half_up(sums, SUM_BITS)


def half_up(sums: Sums, bits: int) -> Sums:
    """Return floor(sums / 2**bits + 0.5) as float64: (sums + 2**(bits-1)) >> bits in integers."""
    rounded = sums + (1 << (bits - 1))
    rounded *= 2.0**-bits
    return np.floor(rounded, out=rounded)
