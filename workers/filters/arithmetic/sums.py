"""Sums of linear neighbourhood filters: two passes over planes, alpha, and squares on the device.

Of images with alpha, colour times alpha and alpha itself are filtered. Guarantees: the colour of
transparent pixels never leaks into visible pixels, a plain colour keeps its value under any alpha,
and pixels whose filtered alpha is 0 become 0, 0, 0, 0.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.tiling import bands

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


def two_passes(
    planes: Planes,
    rows: Callable[[Band], Band | Sums],
    columns: Callable[[Band], Sums],
) -> Iterator[tuple[Place, Sums]]:
    """Yield bands of columns in order, with the filtered planes there: float64 (H, band, n).

    Between the passes the results of `rows` are truncated to int32.
    """
    height, width, count = planes.shape
    source = np.ascontiguousarray(planes)
    held = np.empty(planes.shape, np.int32)
    for band in bands(height, width * count):
        held[band] = rows(source[band])
    for band in bands(width, height * count):
        yield (slice(None), band), columns(held[:, band])


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
