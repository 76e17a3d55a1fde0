"""The median filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.ranking import RANKING, ranking_passes
from workers.filters.base import Filter, Odd
from workers.kernels.items import Pass, Shape

_SMALL = {
    3: Pass("median_exchange", 128, 32),
    5: Pass("median_5", 128, 63),
    7: Pass("median_7", 128, 63),
}
"""By size."""


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
        """cv2.medianBlur, equal to scipy.ndimage.median_filter with mode="nearest"."""
        source = np.ascontiguousarray(pixels)
        return np.ascontiguousarray(cv2.medianBlur(source, self.size).reshape(pixels.shape))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """One of the passes: small sizes have their own, others are those of any rank."""
        own = _SMALL.get(self.size)
        return ranking_passes(self.size) if own is None else (own,)

    def device_data(self, shape: Shape) -> bytes:
        """The size, and the rank of a median."""
        return struct.pack("<2i", self.size, self.size * self.size // 2)
