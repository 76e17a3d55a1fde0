"""Correlation with integer weights of any shape, exact: the order of summation does not matter.

Knows nothing of alpha, or where weights come from.
"""

import itertools
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.borders import OPENCV, Border, Places, places
from workers.filters.arithmetic.separable import Place, Planes, Sums

SINGLE_BITS = 24
"""Float32 holds all integers of so many bits."""

TRANSFORMED = 130
"""From so many weights on, OpenCV takes a Fourier transform of float32, which is not exact."""

TILE = 512
"""Side of a tile, at least: what keeps memory small."""

BLOCK, SMALL_TILE = 11, 256
"""Sides: of weights that are fewer than `TRANSFORMED`, and of a tile with them."""

FEW = 400
"""Weights that are not 0, as of a line, for which a transform is slower than adding them up."""

Singles = NDArray[np.float32]


def correlated(
    planes: Planes, weights: NDArray[np.int64], border: Border
) -> Iterator[tuple[Place, Sums]]:
    """Tiles, in order, and the sums there: (h, w, n).

    The anchor is at (rows // 2, columns // 2), as OpenCV has it. From 50 weights on, OpenCV takes
    a Fourier transform of float64. Its error is bounded by about 1e-15 times the norms of tile and
    weights: below 0.1 for weights whose sum is below 2**30 and samples of 8 bits, or 2**22 and 16.
    """
    height, width = planes.shape[:2]
    rows, columns = weights.shape
    up, left = rows // 2, columns // 2
    ys, xs = places(height, rows, border), places(width, columns, border)
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
    """The same in float32, for sums it holds: in blocks of weights, those of zeros left out."""
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
    """The samples there, 0 outside."""
    inside = bool((np.diff(xs) == 1).all()) and xs[0] >= 0
    found = planes[ys, xs[0] : xs[-1] + 1] if inside else planes[np.ix_(ys, xs)]
    piece = found.astype(np.float64)
    piece[ys < 0] = 0
    piece[:, xs < 0] = 0
    return piece


def correlated_bytes(
    pixels: Pixels, weights: NDArray[np.int64], border: Border, bits: int, shift: int
) -> Pixels:
    """min(255, max(0, (sum + shift) >> bits)) of every sample and its neighbours.

    Few small weights are one call of OpenCV, all of whose float32 sums are exact; the half of a
    unit added there makes its rounding to the nearest never meet a tie.
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
        result[place] = np.clip(sums, 0, 255, out=sums)
    return result


def fits_single(weights: NDArray[np.int64], bits: int, shift: int) -> bool:
    """Whether float32 holds all sums over bytes, and their halves: exact in any order."""
    return 510 * int(np.abs(weights).sum()) + abs(2 * shift + 1 - (1 << bits)) < 1 << SINGLE_BITS
