"""The median filter, and the rank filter, of which it is a special case."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.base import Filter, Odd, number, odd
from workers.filters.rank.ranking import RANKING, ranked, ranking_passes
from workers.kernels.items import Pass, Shape

_SMALL = {
    3: Pass("median_3"),
    5: Pass("median_5"),
    7: Pass("median_7"),
}
"""The passes for small squares, by side in pixels; other sizes use those of any rank."""


class Median(Filter):
    """Replace every sample by the median of the square around it."""

    name: Literal["median"] = "median"
    size: Odd = odd(3, 3, 101, "side of the square, odd")

    example: ClassVar = {"name": "median", "size": 3}
    alpha_rule: ClassVar = "plane"
    border: ClassVar = "replicate"
    passes: ClassVar = (*_SMALL.values(), *RANKING.values())

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.medianBlur` of uint8 (H, W, C).

        It equals scipy.ndimage.median_filter with mode="nearest". OpenCV exchanges vectors for
        sides 3 and 5 and keeps histograms for larger sides (S. Perreault, P. Hébert, "Median
        filtering in constant time", 2007); a median is exact, so the method does not show.
        """
        source = np.ascontiguousarray(pixels)
        return np.ascontiguousarray(cv2.medianBlur(source, self.size).reshape(pixels.shape))

    @property
    def rows_around(self) -> int:
        """Return the radius of the square."""
        return self.size // 2

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass for this size."""
        own = _SMALL.get(self.size)
        return ranking_passes(self.size) if own is None else (own,)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the side in pixels and the rank of the median, int32 each."""
        return struct.pack("<2i", self.size, self.size * self.size // 2)


class Rank(Filter):
    """Replace every sample by the one of a given rank in the square around it."""

    name: Literal["rank"] = "rank"
    size: Odd = odd(3, 3, 101, "side of the square, odd")
    percentile: float = number(
        50,
        0,
        100,
        "%",
        "share of samples that are smaller: 0 is the minimum, 50 the median, 100 the maximum",
    )

    example: ClassVar = {"name": "rank", "size": 5, "percentile": 80}
    alpha_rule: ClassVar = "plane"
    border: ClassVar = "replicate"
    passes: ClassVar = Median.passes

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the sample at int(size² · percentile / 100) of the square in order, the last
        sample for 100.

        This equals `scipy.ndimage.percentile_filter` with mode="nearest". uint8 (H, W, C) both
        ways. Extremes are erosions and dilations, and the median is `cv2.medianBlur`, which are
        faster.
        """
        source, area, rank = np.ascontiguousarray(pixels), self.size**2, self._rank()
        if rank in (0, area - 1):
            square = np.ones((self.size, self.size), np.uint8)
            extreme = cv2.erode if rank == 0 else cv2.dilate
            found = extreme(source, square, borderType=cv2.BORDER_REPLICATE)
        elif rank == area // 2:
            found = cv2.medianBlur(source, self.size)
        else:
            found = ranked(source, self.size, rank)
        return np.ascontiguousarray(found, np.uint8).reshape(pixels.shape)

    @property
    def rows_around(self) -> int:
        """Return the radius of the square."""
        return self.size // 2

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass of the median if the rank is that of the median, else the pass of any
        rank.
        """
        if self._rank() == self.size**2 // 2:
            return Median(size=self.size).device_passes
        return ranking_passes(self.size)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the side in pixels and the rank, int32 each."""
        return struct.pack("<2i", self.size, self._rank())

    def _rank(self) -> int:
        """Return the rank from 0 to size² - 1."""
        area = self.size * self.size
        return min(int(float(area) * self.percentile / 100), area - 1)
