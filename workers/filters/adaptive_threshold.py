"""The adaptive_threshold filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter, Odd
from workers.filters.colour import repeated
from workers.filters.luma import luma

_METHODS = {"mean": cv2.ADAPTIVE_THRESH_MEAN_C, "gaussian": cv2.ADAPTIVE_THRESH_GAUSSIAN_C}


class AdaptiveThreshold(Filter):
    """Black and white, each pixel judged by its own neighbourhood: for text in uneven light."""

    name: Literal["adaptive_threshold"] = "adaptive_threshold"
    block: Odd = Field(
        11,
        ge=3,
        le=255,
        description="side of the neighbourhood, odd",
        json_schema_extra={"unit": "px", "not": {"multipleOf": 2}},
    )
    c: float = Field(
        2,
        ge=-255,
        le=255,
        description="how much darker than its neighbourhood a black pixel is",
        json_schema_extra={"unit": "level"},
    )
    method: Literal["mean", "gaussian"] = Field("mean", description="of the neighbourhood")

    example: ClassVar = {"name": "adaptive_threshold", "block": 31, "c": 5}
    alpha_rule: ClassVar = "drop"
    border: ClassVar = "replicate"
    result_shape: ClassVar = "no alpha"

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.adaptiveThreshold` with THRESH_BINARY on the luma; the result has no alpha."""
        grey = np.ascontiguousarray(luma(pixels))
        method, binary = _METHODS[self.method], cv2.THRESH_BINARY
        parted = cv2.adaptiveThreshold(grey, 255, method, binary, self.block, self.c)
        return repeated(np.asarray(parted, np.uint8), min(pixels.shape[2], 3))
