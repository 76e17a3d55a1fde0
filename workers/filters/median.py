"""The median filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter, Odd
from workers.kernels.items import Pass, Shape


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
    passes: ClassVar = (
        Pass("median_exchange", 128, 32),
        Pass("median_bits_5", 128, 63),
        Pass("median_bits_7", 128, 63),
        Pass("median_slide", 96, 128),
        Pass("descent_17", 128, 128),
        Pass("descent_33", 128, 128),
        Pass("descent_65", 128, 128),
        Pass("descent_101", 128, 64),
    )

    def apply(self, pixels: Pixels) -> Pixels:
        """cv2.medianBlur, equal to scipy.ndimage.median_filter with mode="nearest"."""
        source = np.ascontiguousarray(pixels)
        return np.ascontiguousarray(cv2.medianBlur(source, self.size).reshape(pixels.shape))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """One of the passes: for a size of 3, of 5, of 7, up to 13, 17, 33, 65, and above."""
        ends = (3, 5, 7, 13, 17, 33, 65)
        return (self.passes[sum(self.size > end for end in ends)],)

    def device_data(self, shape: Shape) -> bytes:
        """The size, and the rank of a median."""
        return struct.pack("<2i", self.size, self.size * self.size // 2)
