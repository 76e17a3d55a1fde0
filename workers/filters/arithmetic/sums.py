"""Sums of linear neighbourhood filters: exact correlation, alpha, and squares on the device.

Of images with alpha, colour times alpha and alpha itself are filtered. Guarantees: the colour of
transparent pixels never leaks into visible pixels, a plain colour keeps its value under any alpha,
and pixels whose filtered alpha is 0 become 0, 0, 0, 0.
"""

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels

# Border modes: the rules that define pixels outside an image, and their names in OpenCV and numpy.

Border = Literal["replicate", "reflect", "mirror", "wrap", "constant"]
"""aaa|abcd|ddd, cba|abcd|dcb, dcb|abcd|cba, bcd|abcd|abc, 000|abcd|000, in this order.

The names differ between libraries: our "reflect" is numpy's "symmetric", and our "mirror" is the
"reflect" of numpy and torch.
"""

Places = NDArray[np.intp]
"""Indices along one axis of an image, int64; -1 stands for a pixel outside a constant border."""

OPENCV: Mapping[Border, int] = {
    "replicate": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
    "constant": cv2.BORDER_CONSTANT,
}
"""The border modes as constants of OpenCV.

The order of the keys is the numbering of `enum Border` in kernels/headers/borders.cuh.
"""


def places(length: int, side: int, border: Border) -> Places:
    """Return the index of every pixel that windows of `side` pixels along a line read.

    The result has length + side - 1 entries. The window of pixel i is the slice i … i + side - 1,
    and the pixel itself is entry side // 2 of it.
    """
    before, line = side // 2, np.arange(length, dtype=np.int32)[None]
    found = cv2.copyMakeBorder(line, 0, 0, before, side - 1 - before, OPENCV[border], value=(-1,))
    indices: Places = np.asarray(found, np.intp)[0]
    return indices


# Cut images into pieces that fit a cache, which bounds the memory of a filter for any image size.

BAND_SAMPLES = 1 << 18
"""Samples in a piece: 2 MiB as float64. Measured: filters on whole images took 20 times their
size.
"""


STRIP_SAMPLES = 1 << 16
"""Samples in a piece for steps of few instructions, which need a closer cache; measured as well."""
COUNTED = 1 << 20
"""Samples of a piece whose levels are counted."""


def bands(length: int, breadth: int, samples: int = BAND_SAMPLES) -> Iterator[slice]:
    """Yield slices that cover `length` rows (or columns) of `breadth` samples each, in order."""
    step = max(1, samples // breadth)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def pieces(pixels: Pixels, samples: int = BAND_SAMPLES) -> Iterator[Pixels]:
    """Yield all pixels of uint8 (H, W, C) in order, in pieces (1, n, C) of about `samples` samples.

    They do not depend on the length of a row. The pieces of a contiguous image are views.
    """
    line = pixels.reshape(1, -1, pixels.shape[2])
    for piece in bands(line.shape[1], line.shape[2], samples):
        yield line[:, piece]


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


def filtered(
    pixels: Pixels,
    weighted_sums: Callable[[Planes], Iterable[tuple[Place, Sums]]],
    rounded: Callable[[Sums], Sums],
) -> Pixels:
    """Apply a linear filter to uint8 (H, W, C) and return uint8 of the same shape.

    `weighted_sums` yields float64 sums of planes piece by piece; `rounded` maps sums to 0…255. With
    alpha, the planes are uint16 colour · alpha and 255 · alpha. With N and D their sums, alpha is
    rounded(D // 255) and colour is (510·N + D) // (2·D), in integers below 2**50.
    """
    result = np.empty(pixels.shape, np.uint8)
    if pixels.shape[2] < 4:
        for place, sums in weighted_sums(pixels):
            result[place] = rounded(sums)
        return result
    for place, sums in weighted_sums(_premultiplied(pixels)):
        result[place] = _straight(sums, rounded)
    return result


def _premultiplied(pixels: Pixels) -> Planes:
    """Return colour · alpha and 255 · alpha, uint16 (H, W, 4).

    Alpha is weighted like the colour 255: its sum then bounds the sums of the colours and rounds
    like them. With alpha weighted as itself, the two roundings of a Gaussian made fringes of 256,
    which wrapped to black in a byte.
    """
    colour = pixels.copy()
    colour[:, :, 3] = 255
    alpha = cv2.merge([pixels[:, :, 3]] * 4)
    return np.multiply(colour, alpha, dtype=np.uint16)


def _straight(sums: Sums, rounded: Callable[[Sums], Sums]) -> Pixels:
    """Divide by alpha, uint8 (h, w, 4).

    A float64 quotient below 256 of these integers has the same floor as the exact quotient.
    """
    weight = sums[:, :, 3]
    visible = rounded(np.floor(weight / 255))
    divisor = np.where(visible > 0, 2 * weight, np.inf)
    result = np.empty(sums.shape, np.uint8)
    for channel in range(3):
        result[:, :, channel] = (510 * sums[:, :, channel] + weight) / divisor
    result[:, :, 3] = visible
    return result


def device_box(radius: int) -> bytes:
    """Return `struct Box`: the radius, the area of the square, and a 64-bit reciprocal, 16 bytes.

    The reciprocal is floor(2**64 / (2 · area)) + 1. The high 64 bits of its product with a number
    are that number divided by 2 · area, exactly for all sums that occur: division by an invariant
    integer by multiplication (T. Granlund, P. Montgomery, 1994, theorem 4.2).
    """
    area = (2 * radius + 1) ** 2
    return struct.pack("<2iQ", radius, area, (1 << 64) // (2 * area) + 1)


# Exact correlation with integer weights of any shape: no order of summation changes the result.
#
# Callers handle alpha and choose the weights.

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
    rows, columns = weights.shape
    up, left = rows // 2, columns // 2
    # A tile has at least three times the sides of the weights, so with its margins at most 16 / 9
    # of the samples of its results are read.
    kernel, side = weights.astype(np.float64), max(TILE, 3 * rows, 3 * columns)
    for place, piece in _tiles(planes, weights.shape, border, side):
        sums = np.asarray(cv2.filter2D(piece, cv2.CV_64F, kernel, borderType=0))
        height, width = len(piece) - rows + 1, piece.shape[1] - columns + 1
        inside = sums.reshape(piece.shape)[up : up + height, left : left + width]
        yield place, np.rint(inside)


def _tiles(
    planes: Planes, window: tuple[int, ...], border: Border, side: int
) -> Iterator[tuple[Place, Sums]]:
    """Yield places of at most `side` rows and columns, and the samples that a window reads for
    them, as float64.
    """
    (height, width), (rows, columns) = planes.shape[:2], window
    ys, xs = places(height, rows, border), places(width, columns, border)
    for top, left in itertools.product(range(0, height, side), range(0, width, side)):
        bottom, right = min(top + side, height), min(left + side, width)
        piece = _gathered(planes, ys[top : bottom + rows - 1], xs[left : right + columns - 1])
        yield (slice(top, bottom), slice(left, right)), piece


def _correlated_directly(
    planes: Planes, weights: NDArray[np.int64], border: Border
) -> Iterator[tuple[Place, Singles]]:
    """Yield the same in float32, for sums that it holds exactly, block by block of weights.

    Blocks of zeros are skipped: a line of 255 pixels has few blocks that hold any weight.
    """
    rows, columns = weights.shape
    for place, piece in _tiles(planes, weights.shape, border, SMALL_TILE):
        single = piece.astype(np.float32)
        shape = len(piece) - rows + 1, piece.shape[1] - columns + 1
        sums = np.zeros((*shape, planes.shape[2]), np.float32)
        for y, x in itertools.product(range(0, rows, BLOCK), range(0, columns, BLOCK)):
            block = weights[y : y + BLOCK, x : x + BLOCK]
            if block.any():
                sums += _block_sums(single[y:, x:], block.astype(np.float32), shape)
        yield place, sums


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
