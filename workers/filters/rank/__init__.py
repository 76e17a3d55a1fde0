"""Rank filters: any percentile of the square around each pixel, and the median."""

import functools
from collections.abc import Iterator
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.sums import places
from workers.filters.base import Filter, Odd, number, odd
from workers.kernels.items import Pass

# Rank filters: the r-th smallest sample of the square around each pixel, exact, in two ways.
#
# A square of up to 11 × 11 is sorted by a network of compare-exchange steps. A step is a minimum
# and a maximum of two whole planes, which OpenCV computes at memory speed. The network grows as
# n · log²(n) with n = size², so the samples of larger squares are counted, by a binary search over
# the levels that occur in a tile: a box filter counts the samples below a level in each square, and
# its cost does not depend on the size. If more than `rank` samples are below the level, the result
# is below it, else it is not.

LARGEST_SORTED = 11
"""The largest side of a square, in pixels, for which sorting is faster than counting."""

LINE = 1 << 15
"""Samples in a band that is sorted at a time: one band for each sample of a square fits the
cache.
"""

TILE = 256
"""Side of a tile that is counted at a time, in pixels."""

RANKING = {size: Pass(f"rank_{size}") for size in (3, 5, 7, 9, 17, 33, 65, 101)}
"""The GPU passes by the largest size, in pixels, that each kernel takes."""

Step = tuple[int, int, bool, bool]
"""Two places of a network, and whether the smaller and the larger result are needed later."""


def ranked(pixels: Pixels, size: int, rank: int) -> Pixels:
    """Return the `rank`-th smallest (from 0) of size × size samples around each, uint8 (H, W, C).

    The border mode is replicate.
    """
    if size <= LARGEST_SORTED:
        return _sorted(pixels, size, rank)
    result = np.empty(pixels.shape, np.uint8)
    ys, xs = (places(length, size, "replicate") for length in pixels.shape[:2])
    for channel in range(pixels.shape[2]):
        plane = np.ascontiguousarray(pixels[:, :, channel])
        for top in range(0, pixels.shape[0], TILE):
            for left in range(0, pixels.shape[1], TILE):
                rows, columns = ys[top : top + TILE + size - 1], xs[left : left + TILE + size - 1]
                tile = plane[np.ix_(rows, columns)]
                into = result[top : top + TILE, left : left + TILE, channel]
                into[:] = _counted(tile, size, rank)
    return result


def _sorted(pixels: Pixels, size: int, rank: int) -> Pixels:
    height, width, channels = pixels.shape
    reach = size // 2
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    lines, result = padded.reshape(len(padded), -1), np.empty(pixels.shape, np.uint8)
    steps, whole = network(size * size, rank), result.reshape(height, -1)
    rows = max(1, LINE // (width * channels))
    for top in range(0, height, rows):
        end = min(top + rows, height)
        samples = [
            lines[top + y : end + y, x * channels : (x + width) * channels]
            for y in range(size)
            for x in range(size)
        ]
        for low, high, smaller, larger in steps:
            a, b = samples[low], samples[high]
            if smaller:
                samples[low] = np.asarray(cv2.min(a, b))
            if larger:
                samples[high] = np.asarray(cv2.max(a, b))
        whole[top:end] = samples[rank]
    return result


@functools.lru_cache(64)
def network(count: int, rank: int) -> tuple[Step, ...]:
    """Return the steps of Batcher's odd-even merge sort that place `rank` depends on, in order."""
    needed, steps = {rank}, []
    # Backwards from the result: a step is needed if a later step, or the result, reads one of its
    # two places; then both of its inputs are needed too.
    for low, high in reversed(list(_batcher(count))):
        smaller, larger = low in needed, high in needed
        if smaller or larger:
            needed |= {low, high}
            steps.append((low, high, smaller, larger))
    return tuple(reversed(steps))


def _batcher(count: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs to compare and exchange (K. Batcher, 1968; D. Knuth, The Art of Computer
    Programming, volume 3, section 5.2.2, algorithm M).
    """
    top = 1 << (count - 1).bit_length() - 1
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


def _counted(tile: Pixels, size: int, rank: int) -> NDArray[np.uint8]:
    """Return the ranks of a tile, uint8, without its margins of size // 2, by binary search."""
    reach = size // 2
    inside = (slice(reach, -reach), slice(reach, -reach))
    result = np.zeros(tile[inside].shape, np.uint8)
    levels = np.flatnonzero(np.bincount(tile.ravel(), minlength=256)).astype(np.uint8)
    # Each entry is an interval of levels with a mask of the pixels whose result lies in it. Masks
    # are bytes of 0 or 255, so that bit operations select pixels without branches.
    open_ = [(0, len(levels), np.full_like(result, 255))]
    while open_:
        first, end, here = open_.pop()
        if end - first == 1:
            result |= here & levels[first]
            continue
        middle = (first + end) // 2
        below = np.less(tile, levels[middle]).view(np.uint8)
        count = np.asarray(cv2.boxFilter(below, cv2.CV_32S, (size, size), normalize=False))
        # In two's complement the negative of 1 is 255: a mask of the pixels below the middle level.
        low = np.negative(np.greater(count[inside], rank).view(np.uint8))
        for ends, part in ((first, middle), here & low), ((middle, end), here & ~low):
            if part.any():
                open_.append((*ends, part))
    return result


_SMALL = {size: Pass(f"median_{size}") for size in (3, 5, 7)}
"""The passes for small squares, by side in pixels; other sizes use those of any rank."""


class _Ranking(Filter):
    """Base class of filters that replace every sample by the one of a rank in its square."""

    size: Odd = odd(3, 3, 101, "side of the square, odd")

    alpha_rule: ClassVar = "plane"
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: self.size // 2
    passes: ClassVar = (*_SMALL.values(), *RANKING.values())
    packed: ClassVar = ("<2i", "size", "_rank")

    # OpenCV exchanges vectors for medians of the sides 3 and 5 and keeps histograms for larger
    # sides (S. Perreault, P. Hébert, "Median filtering in constant time", 2007); a median is exact,
    # so the method does not show.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return the sample of this rank of the square in order, uint8 (H, W, C).

        Extremes are erosions and dilations, and the median is `cv2.medianBlur`, which are faster.
        This equals the filters of scipy.ndimage with mode="nearest".
        """
        source, rank = np.ascontiguousarray(pixels), self._rank
        if rank in (0, self.size**2 - 1):
            square = np.ones((self.size, self.size), np.uint8)
            extreme = cv2.erode if rank == 0 else cv2.dilate
            found = extreme(source, square, borderType=cv2.BORDER_REPLICATE)
        elif rank == self._middle:
            found = cv2.medianBlur(source, self.size)
        else:
            found = ranked(source, self.size, rank)
        return np.ascontiguousarray(found, np.uint8).reshape(pixels.shape)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass of the median of a small square, else the pass of any rank."""
        if self.size in _SMALL and self._rank == self._middle:
            return (_SMALL[self.size],)
        return (next(pass_ for largest, pass_ in RANKING.items() if self.size <= largest),)

    @property
    def _middle(self) -> int:
        return self.size**2 // 2

    @property
    def _rank(self) -> int:
        """Return the rank from 0 to size² - 1."""
        return self._middle


class Median(_Ranking):
    """Replace every sample by the median of the square around it."""

    example: ClassVar = {"size": 3}


class Rank(_Ranking):
    """Replace every sample by the one of a given rank in the square around it."""

    percentile: float = number(
        50,
        0,
        100,
        "%",
        "share of samples that are smaller: 0 is the minimum, 50 the median, 100 the maximum",
    )

    example: ClassVar = {"size": 5, "percentile": 80}

    @property
    def _rank(self) -> int:
        """Return int(size² · percentile / 100), or the last rank for 100."""
        area = self.size * self.size
        return min(int(float(area) * self.percentile / 100), area - 1)
