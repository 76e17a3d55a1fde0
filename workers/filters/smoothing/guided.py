"""The guided filter: a local linear model of each colour by the luma.

Source: K. He, J. Sun, X. Tang, "Guided image filtering", 2013, algorithm 1. In detail:

1. In every square, a colour p is modelled as a · I + b with I the luma, by least squares.
2. a = cov(I, p) / (var(I) + eps) and b = mean(p) - a · mean(I); eps penalises slopes.
3. In flat areas var(I) is far below eps: a is near 0 and the result is the mean.
4. At edges var(I) is far above eps: a is near 1 and the edge stays, without a halo.
5. Each pixel lies in many squares; their a and b are averaged: q = mean(a) · I + mean(b).
6. All means are box sums, so the cost does not depend on the radius.
7. Our definition replaces means by sums S over n pixels and computes in integers (see `apply`).
8. a and b are rounded to 16 fractional bits, so their sums are exact in any order.
9. All integers stay below 2**53, which float64 holds; only divisions round, and identically.
10. Tiles have margins of twice the radius: sums of sums reach that far.
"""

import math
import struct
from collections.abc import Iterator
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, luma, split_alpha
from workers.filters.arithmetic.sums import Place, device_box
from workers.filters.base import Filter, number
from workers.filters.separable.gaussian import half_up
from workers.kernels.items import Pass, Shape

BITS = 16
"""Bits of the fraction of slopes and offsets."""

TILE = 512
"""The smallest side of a tile, in pixels: tiles bound the memory for float64 planes."""

STRIP = 1 << 15
"""Samples of a tile that are computed at a time, so that they stay in the cache."""

_KERNELS = ("guided_fit", "guided_mean")
_FIRST = tuple(Pass(kernel) for kernel in _KERNELS)
_OTHER = tuple(Pass(kernel, channels=(3, 4)) for kernel in _KERNELS)

Plane = NDArray[np.float64]
"""Float64 (h, w) that holds integers below 2**53, so that sums are exact in any order."""


class Guided(Filter):
    """Smooth surfaces and keep edges of the luma, without a halo (He, Sun, Tang, 2013)."""

    name: Literal["guided"] = "guided"
    radius: int = number(8, 1, 100, "px", "pixels from the centre of the square to its edge")
    eps: float = number(
        0.01, 1e-6, 1, "ratio", "variance of a smooth surface; 1 is the square of the whole range"
    )

    example: ClassVar = {"name": "guided", "radius": 6, "eps": 0.02}
    alpha_rule: ClassVar = "keep"
    cpu_bytes_per_pixel: ClassVar = (11, 15)
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    passes: ClassVar = (*_FIRST, *_OTHER, *_OTHER)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return q = mean(a) · I + mean(b) for every colour sample, uint8 (H, W, C); alpha is
        copied.

        With I the luma, p a colour, n the area of the square, S sums over squares and F(x) =
        floor(x + 0.5): V = n · S(I·I) - S(I)² + F(eps · (255 · n)²), A = F((n · S(I·p) - S(I) ·
        S(p)) / V · 2**16), B = F((S(p) · 2**16 - A · S(I)) / n) and q = (floor((S(A) · I + S(B)) /
        n) + 2**15) >> 16, clipped to 0…255. Divisions are in float64; all integers are below 2**53.
        """
        colour, alpha = split_alpha(pixels)
        guide, result = luma(pixels), np.empty(colour.shape, np.uint8)
        # With tiles of ten radii the margins, two radii on each side, at most double the work.
        most = max(TILE, 10 * self.radius)
        for rows in _parts(guide.shape[0], most):
            for columns in _parts(guide.shape[1], most):
                result[rows, columns] = self._tile(guide, colour, (rows, columns))
        return join_alpha(result, alpha)

    @property
    def rows_around(self) -> int:
        """Return two radii: sums of sums reach that far."""
        return 2 * self.radius

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Guided`: `struct Box`, and eps in units of V."""
        area = (2 * self.radius + 1) ** 2
        return device_box(self.radius) + struct.pack("<q8x", self._least_spread(area))

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of slopes and offsets of a colour: two int32 a pixel."""
        return 8 * shape[0] * shape[1]

    def _least_spread(self, area: int) -> int:
        """Return F(eps · (255 · area)²), which V is at least."""
        return math.floor(self.eps * (255 * area) ** 2 + 0.5)

    def _tile(self, guide: NDArray[np.uint8], colour: Pixels, place: Place) -> Pixels:
        """Return the result of a tile, computed with a margin that is cut where the image ends."""
        (ys, inner_ys), (xs, inner_xs) = (
            _widened(part, 2 * self.radius, length)
            for part, length in zip(place, guide.shape, strict=True)
        )
        return self._smoothed(guide[ys, xs], colour[ys, xs], (inner_ys, inner_xs))

    def _smoothed(self, light: NDArray[np.uint8], colour: Pixels, inside: Place) -> Pixels:
        """Return the result `inside` the margins, uint8 (h, w, channels)."""
        area = (2 * self.radius + 1) ** 2
        lights = self._sums(light)
        spread = area * self._sums(_product(light, light)) - lights * lights
        spread += self._least_spread(area)
        result = np.empty((*light[inside].shape, colour.shape[2]), np.uint8)
        for channel in range(colour.shape[2]):
            plane = np.ascontiguousarray(colour[:, :, channel])
            offset = self._sums(plane)
            slope = self._sums(_product(light, plane))
            for rows in _parts(len(slope), max(1, STRIP // slope.shape[1])):
                _fit(slope[rows], offset[rows], lights[rows], spread[rows], area)
            slopes, offsets = self._sums(slope)[inside], self._sums(offset)[inside]
            for rows in _parts(len(slopes), max(1, STRIP // slopes.shape[1])):
                both = slopes[rows] * light[inside][rows]
                both += offsets[rows]
                both /= area
                both = half_up(np.floor(both, out=both), BITS)
                result[rows, :, channel] = np.clip(both, 0, 255, out=both)
        return result

    def _sums(self, plane: Plane | NDArray[np.uint8] | NDArray[np.float32]) -> Plane:
        """Return the sums over squares, float64 (h, w); the border mode is mirror."""
        side, border = (2 * self.radius + 1,) * 2, cv2.BORDER_REFLECT_101
        total = cv2.boxFilter(plane, cv2.CV_64F, side, normalize=False, borderType=border)
        return np.asarray(total, np.float64).reshape(plane.shape)


def _product(light: NDArray[np.uint8], plane: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the product as float32, because OpenCV sums uint16 in 31 bits.

    Squares of radius 91 and more would overflow them.
    """
    return np.multiply(light, plane, dtype=np.float32)


def _fit(slope: Plane, offset: Plane, lights: Plane, spread: Plane, area: int) -> None:
    """Turn, in place, sums of products into A and sums of colours into B."""
    slope *= area
    slope -= lights * offset
    slope /= spread
    _nearest(slope, 1 << BITS)
    offset *= 1 << BITS
    offset -= slope * lights
    offset /= area
    _nearest(offset, 1)


def _nearest(plane: Plane, factor: int) -> None:
    """Replace x by floor(factor · x + 0.5), in place."""
    plane *= factor
    plane += 0.5
    np.floor(plane, out=plane)


def _parts(length: int, most: int) -> Iterator[slice]:
    """Yield slices of a line in about equal parts of at most `most` samples."""
    step = -(-length // -(-length // most))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def _widened(part: slice, margin: int, length: int) -> tuple[slice, slice]:
    """Return a part of a line with its margins, and the position of the part in that."""
    first, last = max(part.start - margin, 0), min(part.stop + margin, length)
    return slice(first, last), slice(part.start - first, part.stop - first)
