"""The median filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.base import Filter, Odd
from workers.filters.rank.ranking import RANKING, ranking_passes
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
    size: Odd = Field(
        3,
        ge=3,
        le=101,
        description="side of the square, odd",
        json_schema_extra={"unit": "px", "not": {"multipleOf": 2}},
    )

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
