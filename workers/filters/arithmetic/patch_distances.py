"""Non-local means in integers: sums over neighbours, weighed by how alike their patches are."""

import struct
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.borders import places

BITS = 14
"""Of a weight: 441 weighed samples fit 31 bits."""

LEVELS_BITS = 12
"""Of a difference between patches, when it is looked up."""

TILE = (256, 256)
"""Rows and columns at a time."""

Weights = NDArray[np.float32]
"""Float32, and sums of products in float64, that hold integers: exact in any order."""


class PatchDistances:
    """Weights for patches and neighbourhoods of so many pixels a side, in so many colours."""

    def __init__(self, h: float, patch: int, search: int, channels: int) -> None:
        self._patch = patch
        self._near, self._far = patch // 2, search // 2
        area = patch * patch * channels
        self._depth = cv2.CV_32F if area * 255 * 255 < 1 << 24 else cv2.CV_64F
        self._shift, self._table = _table(h * h * area)

    def denoised(self, colour: Pixels) -> Pixels:
        """floor(sum(w · x) / sum(w) + 0.5) for every sample; border: mirror."""
        height, width, channels = colour.shape
        margin = self._near + self._far
        ys, xs = (places(length, 2 * margin + 1, "mirror") for length in (height, width))
        result = np.empty(colour.shape, np.uint8)
        for top in range(0, height, TILE[0]):
            for left in range(0, width, TILE[1]):
                rows = ys[top : top + TILE[0] + 2 * margin]
                columns = xs[left : left + TILE[1] + 2 * margin]
                wide = colour[np.ix_(rows, columns)]
                tile = self._tile([np.ascontiguousarray(wide[..., n]) for n in range(channels)])
                result[top : top + TILE[0], left : left + TILE[1]] = tile
        return result

    def device_data(self) -> bytes:
        """`struct Likeness`."""
        last = len(self._table) - 1
        weights = np.pad(self._table.astype("<u2"), (0, len(self._table) % 2))
        return struct.pack("<4i", self._near, self._far, self._shift, last) + weights.tobytes()

    def _tile(self, planes: list[Pixels]) -> Pixels:
        """The planes without their margins. Every pair of pixels is compared once."""
        margin = self._near + self._far
        height, width = (n - 2 * margin for n in planes[0].shape)
        levels = [plane.astype(np.float32) for plane in planes]
        here = (slice(margin, margin + height), slice(margin, margin + width))
        total = np.full((height, width), 1 << BITS, np.float64)
        sums = [plane[here] * np.float64(1 << BITS) for plane in levels]
        for down, right in self._offsets():
            weights = self._weights(planes, height, width, down, right)
            left = max(right, 0)
            for sign, top, start in ((1, down, left), (-1, 0, left - right)):
                part = weights[top : top + height, start : start + width]
                y, x = margin + sign * down, margin + sign * right
                cv2.accumulate(part, total)
                for plane, sum_ in zip(levels, sums, strict=True):
                    cv2.accumulateProduct(plane[y : y + height, x : x + width], part, sum_)
        means = [np.floor((2 * sum_ + total) / (2 * total)) for sum_ in sums]
        return np.stack(means, 2).astype(np.uint8)

    def _offsets(self) -> Iterator[tuple[int, int]]:
        """Half of the neighbours: the others are these from the other side."""
        for down in range(self._far + 1):
            for right in range(-self._far if down else 1, self._far + 1):
                yield down, right

    def _weights(
        self, planes: list[Pixels], height: int, width: int, down: int, right: int
    ) -> Weights:
        """Of pixels and those down and right of them: the tile's, and those that lead into it."""
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
    """A shift, and the weight of every sum of squares that is shifted right by it.

    That of k is floor(2**14 · exp(-(k << shift) / scale) + 0.5), in float64; the last is 0.
    """
    largest = int(scale * (BITS + 1) * np.log(2)) + 1
    shift = max(0, largest.bit_length() - LEVELS_BITS)
    places = np.arange((largest >> shift) + 2) << shift
    return shift, np.floor(np.exp(-places / scale) * (1 << BITS) + 0.5).astype(np.float32)
