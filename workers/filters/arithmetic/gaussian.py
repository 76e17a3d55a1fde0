"""Gaussian weights and sums in fixed point, identical on any device.

Horizontal weights are Q22 and the intermediate is 8.8 fixed point; vertical weights are Q16.
Weights are symmetric, sum to exactly one, and are rounded so that their running sums are right:
rounding each weight by itself (largest remainder) was off by 1 on 0.4 % of samples at sigma 100.
"""

import functools
import struct
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.mma_fragments import reach_of, separable_weights, wide_reach_of
from workers.filters.arithmetic.separable import Band, Place, Planes, Sums
from workers.filters.arithmetic.toeplitz import around, correlated_down, tiles, transposed
from workers.kernels.items import Pass

ROW_BITS, COLUMN_BITS, MIDDLE_BITS = 22, 16, 8
SUM_BITS = COLUMN_BITS + MIDDLE_BITS

ACROSS, NARROW = 960, 120
"""Columns in a tile, where rows are summed and where columns are."""

_SMALLEST_IN_TILES = 0.25

ROWS, COLUMNS = Pass("gaussian_rows", 256, 16), Pass("gaussian_columns", 64, 32)
"""The two passes on a GPU, of windows of any size; their data are `device_taps`."""


def taps(sigma: float, bits: int) -> NDArray[np.int64]:
    """2r+1 integer weights with r = int(4·sigma + 0.5), summing to 2**bits; sigma in pixels.

    The window of scipy.ndimage.gaussian_filter with truncate=4.
    """
    radius = int(4 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    exact: NDArray[np.float64] = np.exp(-0.5 * (offsets / sigma) ** 2)
    return quantised(exact, bits)


def reach(sigma_x: float, sigma_y: float) -> int | None:
    """How far tiles must reach for the one pass of `tile_taps`; None where it is not for these.

    The least sigmas weigh the centre with one, which two bytes cannot hold.
    """
    return reach_of(_radius(sigma_x, sigma_y)) if _in_bytes(sigma_x, sigma_y) else None


def wide_reach(sigma_x: float, sigma_y: float) -> int | None:
    """The same for the two passes of filters/blur/gaussian_two_pass_mma.cu, of windows that are
    too large for one.
    """
    return wide_reach_of(_radius(sigma_x, sigma_y)) if _in_bytes(sigma_x, sigma_y) else None


def _in_bytes(sigma_x: float, sigma_y: float) -> bool:
    return min(sigma_x, sigma_y) >= _SMALLEST_IN_TILES


def _radius(sigma_x: float, sigma_y: float) -> int:
    return int(4 * max(sigma_x, sigma_y) + 0.5)


@functools.lru_cache(256)
def tile_taps(sigma_x: float, sigma_y: float, amount: int = 0, threshold: int = 0) -> bytes:
    """`struct Separable` of `Blurred` and `Unsharp` in filters/arithmetic/separable_kernels.cu, and
    of filters/blur/gaussian_two_pass_mma.cu.

    Weights of rows are moved up to Q24, where the half of a sum that stays is whole bytes.
    """
    across, down = taps(sigma_x, ROW_BITS) << 24 - ROW_BITS, taps(sigma_y, COLUMN_BITS)
    far = reach(sigma_x, sigma_y) or wide_reach(sigma_x, sigma_y)
    assert far is not None
    header = struct.pack("<3I4x", amount, threshold, (far + 8) // 16)
    return header + separable_weights(across, down, far, (3, 2))


def quantised(exact: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Symmetric weights, odd in number, as integers that sum to 2**bits."""
    radius = len(exact) // 2
    exact = exact * ((1 << bits) / exact.sum())
    half = np.diff(np.floor(np.cumsum(exact[:radius]) + 0.5), prepend=0).astype(np.int64)
    weights: NDArray[np.int64] = np.concatenate((half, [0], half[::-1]))
    weights[radius] = (1 << bits) - weights.sum()
    return weights


def blurred(planes: Planes, sigma_x: float, sigma_y: float) -> Iterator[tuple[Place, Sums]]:
    """Gaussian sums of integer planes (H, W, n) in units of 2**-24, by tiles.

    Border: replicate.
    """
    return _two_passes(planes, taps(sigma_x, ROW_BITS), taps(sigma_y, COLUMN_BITS), 0)


def blurred_levels(planes: Planes, sigma_x: float, sigma_y: float) -> Iterator[tuple[Place, Sums]]:
    """The same in levels, and one half: the whole part is what a level becomes."""
    down = taps(sigma_y, COLUMN_BITS) * 2.0**-SUM_BITS
    return _two_passes(planes, taps(sigma_x, ROW_BITS), down, 1 << (MIDDLE_BITS - 1))


def _two_passes(
    planes: Planes, across: NDArray[Any], down: NDArray[Any], more: int
) -> Iterator[tuple[Place, Sums]]:
    """`more` is added to the intermediate, which adds as much to the result: weights sum to one.

    Scaling by a power of two is exact.
    """
    held = _rows(planes, across, more)
    for place in tiles(planes.shape, NARROW):
        rows, columns = place
        seen, inside = around(rows, len(down) // 2)
        yield place, correlated_down(held[seen, columns], down * 1.0, inside)


def _rows(planes: Planes, across: NDArray[Any], more: int) -> Band:
    """The intermediate, and `more`."""
    scaled = across * 2.0 ** (MIDDLE_BITS - ROW_BITS)
    held = np.empty(planes.shape, np.uint16 if planes.dtype == np.uint8 else np.int32)
    for rows, columns in tiles(planes.shape, ACROSS):
        seen, inside = around(columns, len(across) // 2)
        sums = correlated_down(transposed(planes[rows, seen]), scaled, inside)
        sums += 0.5 + more
        cv2.transpose(sums.astype(held.dtype), held[rows, columns])
    return held


def device_taps(
    sigma_x: float, sigma_y: float, *, premultiplied: bool, amount: int = 0, threshold: int = 0
) -> bytes:
    """`struct Gaussian` of gaussian.cu: half of the weights, outwards, in fours.

    `amount` in Q16 and `threshold` are the unsharp mask's.
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
    """`struct Gaussian` of any symmetric weights."""
    outwards = [np.append(w[len(w) // 2 + 1 :], [0] * (-(len(w) // 2) % 4)) for w in (across, down)]
    centres = (int(w[len(w) // 2]) for w in (across, down))
    sizes = (len(w) for w in outwards)
    header = struct.pack("<2i2Ii2I4x", *sizes, *centres, premultiplied, amount, threshold)
    return header + np.concatenate(outwards).astype("<u4").tobytes()


def to_byte(sums: Sums) -> Sums:
    """Half-up from units of 2**-24 to 0…255, which weights that sum to one cannot leave."""
    return half_up(sums, SUM_BITS)


def half_up(sums: Sums, bits: int) -> Sums:
    """(sums + 2**(bits-1)) >> bits; scaling by a power of two is exact."""
    rounded = sums + (1 << (bits - 1))
    rounded *= 2.0**-bits
    return np.floor(rounded, out=rounded)
