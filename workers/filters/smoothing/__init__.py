"""Filters that smooth and keep edges: bilateral, guided, non-local means."""

import itertools
import math
import struct
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma, repeated
from workers.filters.arithmetic.sums import Place, bands, device_box, places
from workers.filters.base import ColourFilter, Odd, number, odd
from workers.filters.interruption import stop_if_late
from workers.filters.separable import half_up, with_margins
from workers.kernels.items import Pass, Shape

# The bilateral filter: a mean of neighbours, weighted by nearness and by similarity.
#
# Source: C. Tomasi, R. Manduchi, "Bilateral filtering for gray and color images", 1998. In detail:
#
# 1. The window is a disc: neighbours at distance sqrt(dx² + dy²) <= radius count.
# 2. The weight of a neighbour is space(dx² + dy²) · colour(d), two Gaussians.
# 3. d is the L1 distance of colours: the sum of absolute differences of the channels, 0…765. The
#    paper measures colours in CIE-Lab; with L1 on RGB, `colour` is a table of 766 weights.
# 4. The result is sum(w · x) / sum(w), rounded, for each channel with the same weights.
# 5. Weights and sums are float32, so the order of summation shows in rare last bits.
# 6. The GPU makes the same tables in float64, rounded to float32, and sums in the order of OpenCV's
#    vector code. OpenCV sums the last columns of a row in another order, which cannot be repeated
#    for all widths; hence `device_tolerance`: a level in 0.01 % of samples.

MOST_REACH = 16
"""The radius of the largest diameter, in pixels."""


class Bilateral(ColourFilter):
    """Smooth surfaces and keep edges: weight neighbours by distance and similarity."""

    diameter: int = number(9, 1, 33, "px", "diameter of the neighbourhood")
    sigma_color: float = number(
        50, 1, 255, "level", "standard deviation of the weights by difference in colour"
    )
    sigma_space: float = number(50, 0.1, 100, "px", "standard deviation of the weights by distance")

    example: ClassVar = {"diameter": 9}
    border: ClassVar = "mirror"
    tolerance: ClassVar = "exact; on a GPU within 1 on at most 0.01 % of samples"
    device_tolerance: ClassVar = 1e-4
    row_reach: ClassVar = lambda self: self.diameter // 2 + 1
    passes: ClassVar = (Pass("bilateral"),)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return `cv2.bilateralFilter`.

        Grey images at diameters up to 5 are filtered as three equal channels with three times
        sigma_color, because OpenCV's IPP path for them truncates instead of rounding.
        """
        if colour.shape[2] == 1 and self.diameter <= 5:
            wide = self._smoothed(repeated(colour[:, :, 0], 3), 3 * self.sigma_color)
            return wide[:, :, :1].copy()
        return self._smoothed(colour, self.sigma_color)

    def _smoothed(self, colour: Pixels, sigma_color: float) -> Pixels:
        smooth = cv2.bilateralFilter(
            np.ascontiguousarray(colour),
            self.diameter,
            sigma_color,
            self.sigma_space,
            borderType=cv2.BORDER_REFLECT_101,
        )
        return np.asarray(smooth, np.uint8).reshape(colour.shape)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Bilateral`: radius, reach of each row, and OpenCV's weights as float32."""
        radius = max(self.diameter // 2, 1)
        rows, columns = np.arange(MOST_REACH + 1), np.arange(-MOST_REACH, MOST_REACH + 1)
        reach = [math.isqrt(max(radius**2 - n**2, 0)) for n in range(MOST_REACH + 1)]
        space = np.exp(np.add.outer(rows**2, columns**2) * (-0.5 / self.sigma_space**2))
        colour = np.exp(np.arange(3 * 255 + 1) ** 2 * (-0.5 / self.sigma_color**2))
        weights = np.concatenate((space.ravel(), colour)).astype("<f4")
        return struct.pack(f"<{MOST_REACH + 2}i", radius, *reach) + bytes(weights.data)


# The guided filter: a local linear model of each colour by the luma.
#
# Source: K. He, J. Sun, X. Tang, "Guided image filtering", 2013, algorithm 1. In detail:
#
# 1. In every square, a colour p is modelled as a · I + b with I the luma, by least squares.
# 2. a = cov(I, p) / (var(I) + eps) and b = mean(p) - a · mean(I); eps penalises slopes.
# 3. In flat areas var(I) is far below eps: a is near 0 and the result is the mean.
# 4. At edges var(I) is far above eps: a is near 1 and the edge stays, without a halo.
# 5. Each pixel lies in many squares; their a and b are averaged: q = mean(a) · I + mean(b).
# 6. All means are box sums, so the cost does not depend on the radius. `recoloured` states them as
#    sums of integers, which are exact in any order.

SLOPE_BITS = 16
"""Bits of the fraction of slopes and offsets."""

GUIDED_TILE = 512
"""The smallest side of a tile, in pixels: tiles bound the memory for float64 planes."""

STRIP = 1 << 15
"""Samples of a tile that are computed at a time, so that they stay in the cache."""

_KERNELS = ("guided_fit", "guided_mean")
_FIRST = tuple(Pass(kernel) for kernel in _KERNELS)
_OTHER = tuple(Pass(kernel, channels=(3, 4)) for kernel in _KERNELS)

Plane = NDArray[np.float64]
"""Float64 (h, w) that holds integers below 2**53, so that sums are exact in any order."""


class Guided(ColourFilter):
    """Smooth surfaces and keep edges of the luma, without a halo (He, Sun, Tang, 2013)."""

    radius: int = number(8, 1, 100, "px", "pixels from the centre of the square to its edge")
    eps: float = number(
        0.01, 1e-6, 1, "ratio", "variance of a smooth surface; 1 is the square of the whole range"
    )

    example: ClassVar = {"radius": 6, "eps": 0.02}
    cpu_bytes_per_pixel: ClassVar = (11, 15)
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    row_reach: ClassVar = lambda self: 2 * self.radius  # sums of sums reach that far
    passes: ClassVar = (*_FIRST, *_OTHER, *_OTHER)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return q = mean(a) · I + mean(b) for every colour sample.

        With I the luma, p a colour, n the area of the square, S sums over squares and F(x) =
        floor(x + 0.5): V = n · S(I·I) - S(I)² + F(eps · (255 · n)²), A = F((n · S(I·p) - S(I) ·
        S(p)) / V · 2**16), B = F((S(p) · 2**16 - A · S(I)) / n) and q = (floor((S(A) · I + S(B)) /
        n) + 2**15) >> 16, clipped to 0…255. Divisions are in float64; all integers are below 2**53.
        """
        guide, result = luma(colour), np.empty(colour.shape, np.uint8)
        # With tiles of ten radii the margins, two radii on each side, at most double the work.
        most = max(GUIDED_TILE, 10 * self.radius)
        for rows in bands(guide.shape[0], 1, most):
            for columns in bands(guide.shape[1], 1, most):
                # Each tile is computed with a margin, which is cut where the image ends.
                ys, inner_ys = with_margins(rows, 2 * self.radius)
                xs, inner_xs = with_margins(columns, 2 * self.radius)
                inside = (inner_ys, inner_xs)
                result[rows, columns] = self._smoothed(guide[ys, xs], colour[ys, xs], inside)
        return result

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
            for rows in bands(len(slope), slope.shape[1], STRIP):
                _fit(slope[rows], offset[rows], lights[rows], spread[rows], area)
            slopes, offsets = self._sums(slope)[inside], self._sums(offset)[inside]
            for rows in bands(len(slopes), slopes.shape[1], STRIP):
                both = slopes[rows] * light[inside][rows]
                both += offsets[rows]
                both /= area
                both = half_up(np.floor(both, out=both), SLOPE_BITS)
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
    _nearest(slope, 1 << SLOPE_BITS)
    offset *= 1 << SLOPE_BITS
    offset -= slope * lights
    offset /= area
    _nearest(offset, 1)


def _nearest(plane: Plane, factor: int) -> None:
    """Replace x by floor(factor · x + 0.5), in place."""
    plane *= factor
    plane += 0.5
    np.floor(plane, out=plane)


# Non-local means in integers: means over neighbours, weighted by the similarity of their patches.
# Source: A. Buades, B. Coll, J.-M. Morel, "A review of image denoising algorithms, with a new
# one", 2005; the loop over offsets with running sums follows J. Darbon et al., "Fast nonlocal
# filtering applied to electron cryomicroscopy", 2008. For each offset of the search square, a box
# filter over patch × patch pixels turns the squared differences of the image and the image moved by
# that offset, summed over all colours, into the distances of patches. The centre pixel itself has
# the full weight 2**14. Sums of squares are exact in float32 below 2**24 and in float64 above, and
# sums of products are exact in float64: every order of summation gives the same bytes.

WEIGHT_BITS = 14
"""Bits of a weight: 441 weighted samples then fit 31 bits."""

LEVELS_BITS = 12
"""Bits of a patch distance when it is looked up in the table of weights."""

PATCH_TILE = (256, 256)
"""Rows and columns of a tile, in pixels."""

Weights = NDArray[np.float32]
"""Float32 that holds integers; sums of products are float64, so they are exact in any order."""


def _weights_by_distance(scale: float) -> tuple[int, Weights]:
    """Return a shift in bits, and the weight of every sum of squares shifted right by it.

    Entry k is floor(2**14 · exp(-(k << shift) / scale) + 0.5), computed in float64; the last is 0.
    """
    largest = int(scale * (WEIGHT_BITS + 1) * np.log(2)) + 1
    shift = max(0, largest.bit_length() - LEVELS_BITS)
    places = np.arange((largest >> shift) + 2) << shift
    return shift, np.floor(np.exp(-places / scale) * (1 << WEIGHT_BITS) + 0.5).astype(np.float32)


class NlMeans(ColourFilter):
    """Remove noise and keep detail: weight pixels by the similarity of their surroundings. Slow."""

    h: float = number(10, 1, 100, "level", "strength: about the standard deviation of the noise")
    patch: Odd = odd(7, 1, 15, "side of the squares that are compared, odd")
    search: Odd = odd(21, 3, 21, "side of the square of neighbours, odd")

    example: ClassVar = {"h": 8, "patch": 5, "search": 15}
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    row_reach: ClassVar = lambda self: self._margin
    passes: ClassVar = (Pass("nl_means"),)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return means weighted by exp(-d / h²): floor(sum(w · x) / sum(w) + 0.5).

        d is the mean squared difference of two patches over all colours, as in OpenCV's
        fastNlMeansDenoising, from which this differs by at most 2 levels. The definition is our
        own, in integers: weights have 14 bits and come from a table indexed by the sum of squares.
        Raises DeadlineExceeded.
        """
        height, width, channels = colour.shape
        margin = self._margin
        table = self._table(channels)
        ys, xs = (places(length, 2 * margin + 1, "mirror") for length in (height, width))
        result = np.empty(colour.shape, np.uint8)
        for top in range(0, height, PATCH_TILE[0]):
            for left in range(0, width, PATCH_TILE[1]):
                rows = ys[top : top + PATCH_TILE[0] + 2 * margin]
                columns = xs[left : left + PATCH_TILE[1] + 2 * margin]
                wide = colour[np.ix_(rows, columns)]
                target = result[top : top + PATCH_TILE[0], left : left + PATCH_TILE[1]]
                stop_if_late()  # a tile takes a fraction of a second
                target[:] = self._tile(
                    list(map(np.ascontiguousarray, np.moveaxis(wide, 2, 0))), table
                )
        return result

    def device_data(self, shape: Shape) -> bytes:
        """Return the struct of patch_distances.cu: reaches, shift, last index, uint16 weights."""
        shift, table = self._table(min(shape[2], 3))
        weights = np.pad(table.astype("<u2"), (0, len(table) % 2))
        header = struct.pack("<4i", self.patch // 2, self.search // 2, shift, len(table) - 1)
        return header + weights.tobytes()

    @property
    def _margin(self) -> int:
        return self.search // 2 + self.patch // 2

    def _table(self, channels: int) -> tuple[int, Weights]:
        return _weights_by_distance(self.h * self.h * (self.patch * self.patch * channels))

    def _tile(self, planes: list[Pixels], table: tuple[int, Weights]) -> Pixels:
        """Return the result for planes with margins, without them; compare every pair once."""
        margin, far = self._margin, self.search // 2
        height, width = (n - 2 * margin for n in planes[0].shape)
        levels = [plane.astype(np.float32) for plane in planes]
        here = (slice(margin, margin + height), slice(margin, margin + width))
        total = np.full((height, width), 1 << WEIGHT_BITS, np.float64)
        sums = [plane[here] * np.float64(1 << WEIGHT_BITS) for plane in levels]
        # Half of the offsets: the second half are the same pairs.
        offsets = itertools.product(range(far + 1), range(-far, far + 1))
        for down, right in (each for each in offsets if each > (0, 0)):
            weights = self._weights(planes, (height, width), down, right, table)
            left = max(right, 0)
            # Each weight serves both pixels of its pair: first the neighbour ahead of a pixel of
            # the tile, then, with the weights moved by the offset, the one behind it.
            for sign, top, start in ((1, down, left), (-1, 0, left - right)):
                part = weights[top : top + height, start : start + width]
                y, x = margin + sign * down, margin + sign * right
                cv2.accumulate(part, total)
                for plane, sum_ in zip(levels, sums, strict=True):
                    cv2.accumulateProduct(plane[y : y + height, x : x + width], part, sum_)
        # floor(sum / total + 1 / 2) with a single division, whose operands are exact integers.
        means = [np.floor((2 * sum_ + total) / (2 * total)) for sum_ in sums]
        return np.stack(means, 2).astype(np.uint8)

    def _weights(
        self,
        planes: list[Pixels],
        size: tuple[int, int],
        down: int,
        right: int,
        table: tuple[int, Weights],
    ) -> Weights:
        """Return weights of pixels and their neighbours at (down, right), float32.

        The result covers the pixels of the tile and the pixels outside whose neighbour lies inside.
        """
        near, far, (shift, weights) = self.patch // 2, self.search // 2, table
        top, left = far - down, far - max(right, 0)
        rows, columns = size[0] + down + 2 * near, size[1] + abs(right) + 2 * near
        squares = np.zeros((rows, columns), np.float32)
        for plane in planes:
            one = plane[top : top + rows, left : left + columns]
            other = plane[top + down :, left + right :][:rows, :columns]
            cv2.accumulateSquare(cv2.absdiff(one, other), squares)
        exact = self.patch * self.patch * len(planes) * 255 * 255 < 1 << 24
        depth, side = cv2.CV_32F if exact else cv2.CV_64F, (self.patch, self.patch)
        sums = np.asarray(cv2.boxFilter(squares, depth, side, normalize=False))
        places = sums[near : rows - near, near : columns - near].astype(np.int32)
        places >>= shift
        np.minimum(places, len(weights) - 1, out=places)
        return np.take(weights, places)
