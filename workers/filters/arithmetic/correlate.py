"""Exact correlation with integer weights of any shape: no order of summation changes the result.

Callers handle alpha and choose the weights.
"""

import itertools
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.borders import OPENCV, Border, Places, places
from workers.filters.arithmetic.sums import Place, Planes, Sums

SINGLE_BITS = 24
"""Float32 holds all integers of at most this many bits."""

TRANSFORMED = 130
"""From this many weights on, OpenCV correlates float32 by a Fourier transform, which is not
exact.
"""

TILE = 512
"""The smallest side of a tile, in pixels: tiles bound the memory for float64 copies."""

BLOCK, SMALL_TILE = 11, 256
"""The sides of a block of weights (fewer than `TRANSFORMED`) and of a tile for such blocks."""

FEW = 400
"""Up to this many weights that are not 0, adding products is faster than a Fourier transform."""

Singles = NDArray[np.float32]


# From 50 weights on, cv2.filter2D in float64 uses a Fourier transform. Its error is at most about
# 1e-15 times the norms of tile and weights. That stays below 0.1, so that rounding to the nearest
# integer restores the exact sum, for weights that sum to less than 2**30 and samples of 8 bits, or
# for weights below 2**22 and samples of 16 bits (colour times alpha). Hence `np.rint` at the end.
def correlated(
    planes: Planes, weights: NDArray[np.int64], border: Border
) -> Iterator[tuple[Place, Sums]]:
    """Yield tiles in order, with their correlation sums: float64 (h, w, n) that holds integers.

    `planes` is uint8 or uint16 (H, W, n). The anchor of the weights is (rows // 2, columns // 2),
    as in OpenCV.
    """
    height, width = planes.shape[:2]
    rows, columns = weights.shape
    up, left = rows // 2, columns // 2
    ys, xs = places(height, rows, border), places(width, columns, border)
    # A tile has at least three times the sides of the weights, so with its margins at most 16 / 9
    # of the samples of its results are read.
    kernel, side = weights.astype(np.float64), max(TILE, 3 * rows, 3 * columns)
    for top in range(0, height, side):
        for start in range(0, width, side):
            bottom, end = min(top + side, height), min(start + side, width)
            piece = _gathered(planes, ys[top : bottom + rows - 1], xs[start : end + columns - 1])
            sums = np.asarray(cv2.filter2D(piece, cv2.CV_64F, kernel, borderType=0))
            inside = sums.reshape(piece.shape)[up : up + bottom - top, left : left + end - start]
            yield (slice(top, bottom), slice(start, end)), np.rint(inside)


def _correlated_directly(
    planes: Planes, weights: NDArray[np.int64], border: Border
) -> Iterator[tuple[Place, Singles]]:
    """Yield the same in float32, for sums that it holds exactly, block by block of weights.

    Blocks of zeros are skipped: a line of 255 pixels has few blocks that hold any weight.
    """
    height, width = planes.shape[:2]
    rows, columns = weights.shape
    ys, xs = places(height, rows, border), places(width, columns, border)
    for top in range(0, height, SMALL_TILE):
        for start in range(0, width, SMALL_TILE):
            bottom, end = min(top + SMALL_TILE, height), min(start + SMALL_TILE, width)
            piece = _gathered(planes, ys[top : bottom + rows - 1], xs[start : end + columns - 1])
            single, shape = piece.astype(np.float32), (bottom - top, end - start)
            sums = np.zeros((*shape, planes.shape[2]), np.float32)
            for y, x in itertools.product(range(0, rows, BLOCK), range(0, columns, BLOCK)):
                block = weights[y : y + BLOCK, x : x + BLOCK]
                if block.any():
                    sums += _block_sums(single[y:, x:], block.astype(np.float32), shape)
            yield (slice(top, bottom), slice(start, end)), sums


def _block_sums(samples: Singles, block: Singles, shape: tuple[int, int]) -> Singles:
    (height, width), (rows, columns) = shape, block.shape
    reach = samples[: height + rows - 1, : width + columns - 1]
    found = cv2.filter2D(reach, cv2.CV_32F, block, anchor=(0, 0), borderType=cv2.BORDER_CONSTANT)
    return np.asarray(found, np.float32).reshape(reach.shape)[:height, :width]


def _gathered(planes: Planes, ys: Places, xs: Places) -> Sums:
    """Return the samples at these rows and columns as float64; samples at -1 are 0."""
    inside = bool((np.diff(xs) == 1).all()) and xs[0] >= 0
    found = planes[ys, xs[0] : xs[-1] + 1] if inside else planes[np.ix_(ys, xs)]
    piece = found.astype(np.float64)
    piece[ys < 0] = 0
    piece[:, xs < 0] = 0
    return piece


# For few small weights this is one call of OpenCV: all of its float32 sums are exact, and the half
# of a unit that `delta` adds keeps its rounding to the nearest from ever meeting a tie, so that
# rounding half to even (OpenCV) and flooring (our definition) agree.
def correlated_bytes(
    pixels: Pixels, weights: NDArray[np.int64], border: Border, bits: int, shift: int
) -> Pixels:
    """Return min(255, max(0, (sum + shift) >> bits)) for every sample, uint8 (H, W, C).

    `weights` is int64 (rows, columns) in units of 2**-bits.
    """
    if weights.size < TRANSFORMED and border != "wrap" and fits_single(weights, bits, shift):
        delta = (shift + 0.5) / (1 << bits) - 0.5
        kernel = weights.astype(np.float32) * np.float32(2.0**-bits)
        found = cv2.filter2D(pixels, -1, kernel, delta=delta, borderType=OPENCV[border])
        return np.asarray(found, np.uint8).reshape(pixels.shape)
    tiles: Iterator[tuple[Place, Singles | Sums]]
    if np.count_nonzero(weights) <= FEW and fits_single(weights, bits, shift):
        tiles = _correlated_directly(pixels, weights, border)
    else:
        tiles = correlated(pixels, weights, border)
    result = np.empty(pixels.shape, np.uint8)
    for place, sums in tiles:
        sums += shift
        sums *= 2.0**-bits
        # The conversion to uint8 truncates, which is the floor that the definition asks for,
        # because the clipped sums are not negative.
        result[place] = np.clip(sums, 0, 255, out=sums)
    return result


def fits_single(weights: NDArray[np.int64], bits: int, shift: int) -> bool:
    """Return whether float32 holds all sums over bytes, and their halves, exactly in any order."""
    # In units of 2**-(bits + 1), in which `delta` is the integer 2 · shift + 1 - 2**bits, a sum of
    # samples is at most 2 · 255 times the sum of all weights.
    return 510 * int(np.abs(weights).sum()) + abs(2 * shift + 1 - (1 << bits)) < 1 << SINGLE_BITS
