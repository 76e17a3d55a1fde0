"""The rank filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.base import Filter, Odd
from workers.filters.rank.median import Median
from workers.filters.rank.ranking import ranked, ranking_passes
from workers.kernels.items import Pass, Shape


class Rank(Filter):
    """Replace every sample by the one of a given rank in the square around it."""

    name: Literal["rank"] = "rank"
    size: Odd = Field(
        3,
        ge=3,
        le=101,
        description="side of the square, odd",
        json_schema_extra={"unit": "px", "not": {"multipleOf": 2}},
    )
    percentile: float = Field(
        50,
        ge=0,
        le=100,
        description="share of samples that are smaller: 0 is the minimum, 50 the median, 100 the "
        "maximum",
        json_schema_extra={"unit": "%"},
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
