"""The nl_means filter."""

import struct
from collections.abc import Iterator
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.borders import places
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter, Odd, number, odd
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Pass, Shape

# Non-local means in integers: means over neighbours, weighted by the similarity of their patches.
# Source: A. Buades, B. Coll, J.-M. Morel, "A review of image denoising algorithms, with a new
# one", 2005; the loop over offsets with running sums follows J. Darbon et al., "Fast nonlocal
# filtering applied to electron cryomicroscopy", 2008. The method: 1. For each offset of the
# search square, take the squared differences of the image and the image moved by that offset,
# summed over all colours. 2. A box filter over patch × patch pixels turns them into the distance
# of two patches. 3. The distance of p and q equals that of q and p, so half of the offsets is
# enough: each weight is used once for p and once for q. 4. The distance is shifted right so that
# a table of about 4,096 weights covers it. 5. A weight is floor(2**14 · exp(-distance / scale) +
# 0.5); it is 0 behind the end of the table. 6. The centre pixel itself has the full weight 2**14.
# 7. 441 weighted samples of 8 bits, 14-bit weights: all sums fit 31 bits. 8. Sums of squares are
# exact in float32 below 2**24 and in float64 above; sums of products are exact in float64. Thus
# every order of summation, on any device, gives the same bytes. 9. The mean is floor(sum(w · x) /
# sum(w) + 0.5). 10. Tiles of 256 × 256 pixels with their margins bound the memory.

BITS = 14
"""Bits of a weight: 441 weighted samples then fit 31 bits."""

LEVELS_BITS = 12
"""Bits of a patch distance when it is looked up in the table of weights."""

TILE = (256, 256)
"""Rows and columns of a tile, in pixels."""

Weights = NDArray[np.float32]
"""Float32 that holds integers; sums of products are float64, so they are exact in any order."""


class PatchDistances:
    """Non-local means for a set of parameters.

    `h` is in levels; `patch` and `search` are the sides of both squares in pixels, odd; `channels`
    is 1 or 3.
    """

    def __init__(self, h: float, patch: int, search: int, channels: int) -> None:
        self._patch = patch
        self._near, self._far = patch // 2, search // 2
        area = patch * patch * channels
        self._depth = cv2.CV_32F if area * 255 * 255 < 1 << 24 else cv2.CV_64F
        self._shift, self._table = _table(h * h * area)

    def denoised(self, colour: Pixels) -> Pixels:
        """Return floor(sum(w · x) / sum(w) + 0.5) for every sample of uint8 (H, W, channels).

        The border mode is mirror. Raises DeadlineExceeded (`workers/filters/interruption.py`).
        """
        height, width, channels = colour.shape
        margin = self._near + self._far
        ys, xs = (places(length, 2 * margin + 1, "mirror") for length in (height, width))
        result = np.empty(colour.shape, np.uint8)
        for top in range(0, height, TILE[0]):
            for left in range(0, width, TILE[1]):
                rows = ys[top : top + TILE[0] + 2 * margin]
                columns = xs[left : left + TILE[1] + 2 * margin]
                wide = colour[np.ix_(rows, columns)]
                target = result[top : top + TILE[0], left : left + TILE[1]]
                stop_if_late()  # a tile takes a fraction of a second
                planes = [np.ascontiguousarray(wide[..., n]) for n in range(channels)]
                target[:] = self._tile(planes)
        return result

    def device_data(self) -> bytes:
        """Return the struct of smoothing/patch_distances.cu: two reaches, the shift, the index of
        the last weight (4 × int32), then the weights (uint16).
        """
        last = len(self._table) - 1
        weights = np.pad(self._table.astype("<u2"), (0, len(self._table) % 2))
        return struct.pack("<4i", self._near, self._far, self._shift, last) + weights.tobytes()

    def _tile(self, planes: list[Pixels]) -> Pixels:
        """Return the result for planes with margins, without the margins; compare every pair
        once.
        """
        margin = self._near + self._far
        height, width = (n - 2 * margin for n in planes[0].shape)
        levels = [plane.astype(np.float32) for plane in planes]
        here = (slice(margin, margin + height), slice(margin, margin + width))
        total = np.full((height, width), 1 << BITS, np.float64)
        sums = [plane[here] * np.float64(1 << BITS) for plane in levels]
        for down, right in self._offsets():
            weights = self._weights(planes, height, width, down, right)
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

    def _offsets(self) -> Iterator[tuple[int, int]]:
        """Yield half of the offsets (down, right); the second half are the same pairs in
        reverse.
        """
        for down in range(self._far + 1):
            for right in range(-self._far if down else 1, self._far + 1):
                yield down, right

    def _weights(
        self, planes: list[Pixels], height: int, width: int, down: int, right: int
    ) -> Weights:
        """Return weights of pixels and their neighbours at (down, right), float32.

        The result covers the pixels of the tile and the pixels outside whose neighbour lies inside.
        """
        top, left = self._far - down, self._far - max(right, 0)
        rows, columns = height + down, width + abs(right)
        rows, columns = rows + 2 * self._near, columns + 2 * self._near
        squares = np.zeros((rows, columns), np.float32)
        for plane in planes:
            one = plane[top : top + rows, left : left + columns]
            other = plane[top + down :, left + right :][:rows, :columns]
            cv2.accumulateSquare(cv2.absdiff(one, other), squares)
        side = (self._patch, self._patch)
        sums = np.asarray(cv2.boxFilter(squares, self._depth, side, normalize=False))
        inside = sums[self._near : rows - self._near, self._near : columns - self._near]
        places = inside.astype(np.int32)
        places >>= self._shift
        np.minimum(places, len(self._table) - 1, out=places)
        return np.take(self._table, places)


def _table(scale: float) -> tuple[int, Weights]:
    """Return a shift in bits, and the weight of every sum of squares shifted right by it.

    Entry k is floor(2**14 · exp(-(k << shift) / scale) + 0.5), computed in float64; the last is 0.
    """
    largest = int(scale * (BITS + 1) * np.log(2)) + 1
    shift = max(0, largest.bit_length() - LEVELS_BITS)
    places = np.arange((largest >> shift) + 2) << shift
    return shift, np.floor(np.exp(-places / scale) * (1 << BITS) + 0.5).astype(np.float32)


class NlMeans(Filter):
    """Remove noise and keep detail: weight pixels by the similarity of their surroundings. Slow."""

    name: Literal["nl_means"] = "nl_means"
    h: float = number(10, 1, 100, "level", "strength: about the standard deviation of the noise")
    patch: Odd = odd(7, 1, 15, "side of the squares that are compared, odd")
    search: Odd = odd(21, 3, 21, "side of the square of neighbours, odd")

    example: ClassVar = {"name": "nl_means", "h": 8, "patch": 5, "search": 15}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    passes: ClassVar = (Pass("nl_means"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return means weighted by exp(-d / h²), half up: uint8 (H, W, C); alpha is copied.

        Source: A. Buades, B. Coll, J.-M. Morel, 2005. d is the mean squared difference of two
        patches over all colours, as in OpenCV's fastNlMeansDenoising, from which this differs by at
        most 2 levels. The definition is our own, in integers: weights have 14 bits and come from a
        table indexed by the sum of squares.
        """
        colour, alpha = split_alpha(pixels)
        return join_alpha(self._distances(colour.shape[2]).denoised(colour), alpha)

    @property
    def rows_around(self) -> int:
        """Return the reach of the search and of a patch."""
        return self.search // 2 + self.patch // 2

    def device_data(self, shape: Shape) -> bytes:
        """Return the reaches, the shift and the table of weights (`PatchDistances.device_data`)."""
        return self._distances(min(shape[2], 3)).device_data()

    def device_scratch(self, _shape: Shape) -> int:
        """Return 0 bytes: the kernel keeps its tiles in shared memory."""
        return 0

    def _distances(self, channels: int) -> PatchDistances:
        return PatchDistances(self.h, self.patch, self.search, channels)
