"""The guided filter."""

import math
import struct
from collections.abc import Iterator
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.box_sums import device_box
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.arithmetic.gaussian import half_up
from workers.filters.arithmetic.luma import luma
from workers.filters.arithmetic.separable import Place
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape

BITS = 16
"""Of slopes and offsets."""

TILE = 512
"""Side of a tile, at least: what keeps memory small."""

STRIP = 1 << 15
"""Samples of a tile that are computed at a time, so that they stay in the cache."""

_KERNELS = ("guided_fit", "guided_mean")
_FIRST = tuple(Pass(kernel, 640, 120) for kernel in _KERNELS)
_OTHER = tuple(Pass(kernel, 640, 120, channels=(3, 4)) for kernel in _KERNELS)

Plane = NDArray[np.float64]
"""Integers below 2**53, so that sums are exact in any order."""


class Guided(Filter):
    """Smooth surfaces and keep edges of the luma, without a halo (He, Sun, Tang, 2013)."""

    name: Literal["guided"] = "guided"
    radius: int = Field(
        8,
        ge=1,
        le=100,
        description="pixels from the centre of the square to its edge",
        json_schema_extra={"unit": "px"},
    )
    eps: float = Field(
        0.01,
        ge=1e-6,
        le=1,
        description="variance that counts as smooth; 1 is that of the whole range, squared",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "guided", "radius": 6, "eps": 0.02}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    passes: ClassVar = (*_FIRST, *_OTHER, *_OTHER)

    def apply(self, pixels: Pixels) -> Pixels:
        """q = mean(a) · I + mean(b), a = cov(I, p) / (var(I) + eps), b = mean(p) - a · mean(I).

        I is the luma, p a colour; means are over squares. Our own definition, in integers: with n
        the square's area, S sums over squares and F = floor(x + 0.5),
        V = n · S(I·I) - S(I)² + F(eps · (255 · n)²), A = F((n · S(I·p) - S(I) · S(p)) / V · 2**16),
        B = F((S(p) · 2**16 - A · S(I)) / n) and q = (floor((S(A) · I + S(B)) / n) + 2**15) >> 16,
        cut to 0…255. The divisions are of float64; all integers are below 2**53.
        """
        colour, alpha = split_alpha(pixels)
        guide, result = luma(pixels), np.empty(colour.shape, np.uint8)
        most = max(TILE, 10 * self.radius)
        for rows in _parts(guide.shape[0], most):
            for columns in _parts(guide.shape[1], most):
                result[rows, columns] = self._tile(guide, colour, (rows, columns))
        return join_alpha(result, alpha)

    def device_data(self, shape: Shape) -> bytes:
        """`struct Guided`."""
        area = (2 * self.radius + 1) ** 2
        return device_box(self.radius) + struct.pack("<q8x", self._least_spread(area))

    def device_scratch(self, shape: Shape) -> int:
        """Slopes and offsets of one colour."""
        return 8 * shape[0] * shape[1]

    def _least_spread(self, area: int) -> int:
        return math.floor(self.eps * (255 * area) ** 2 + 0.5)

    def _tile(self, guide: NDArray[np.uint8], colour: Pixels, place: Place) -> Pixels:
        """With a margin, cut off where the image ends: squares of squares reach so far."""
        (ys, inner_ys), (xs, inner_xs) = (
            _widened(part, 2 * self.radius, length)
            for part, length in zip(place, guide.shape, strict=True)
        )
        return self._smoothed(guide[ys, xs], colour[ys, xs], (inner_ys, inner_xs))

    def _smoothed(self, light: NDArray[np.uint8], colour: Pixels, inside: Place) -> Pixels:
        """The result `inside`; the rest is margin."""
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
        """Over squares."""
        side, border = (2 * self.radius + 1,) * 2, cv2.BORDER_REFLECT_101
        total = cv2.boxFilter(plane, cv2.CV_64F, side, normalize=False, borderType=border)
        return np.asarray(total, np.float64).reshape(plane.shape)


def _product(light: NDArray[np.uint8], plane: NDArray[np.uint8]) -> NDArray[np.float32]:
    """As floats: OpenCV sums uint16 in 31 bits, which squares of radius 91 and more do not fit."""
    return np.multiply(light, plane, dtype=np.float32)


def _fit(slope: Plane, offset: Plane, lights: Plane, spread: Plane, area: int) -> None:
    """In place: sums of products become A, and sums of colours B."""
    slope *= area
    slope -= lights * offset
    slope /= spread
    _nearest(slope, 1 << BITS)
    offset *= 1 << BITS
    offset -= slope * lights
    offset /= area
    _nearest(offset, 1)


def _nearest(plane: Plane, factor: int) -> None:
    """floor(factor · x + 0.5), in place."""
    plane *= factor
    plane += 0.5
    np.floor(plane, out=plane)


def _parts(length: int, most: int) -> Iterator[slice]:
    """A line in about equal parts."""
    step = -(-length // -(-length // most))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def _widened(part: slice, margin: int, length: int) -> tuple[slice, slice]:
    """A part of a line with its margins, and where the part is in that."""
    first, last = max(part.start - margin, 0), min(part.stop + margin, length)
    return slice(first, last), slice(part.start - first, part.stop - first)
