"""The scharr filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma
from workers.filters.base import Filter
from workers.filters.edges.gradient import EDGE_PASSES, Axis, edges, slope_data, tones
from workers.kernels.items import Shape

LONGEST = 5770
"""An upper bound of the gradient's length: rint(sqrt(4080² + 4080²))."""


class Scharr(Filter):
    """Show edges by the 3 × 3 Scharr operator, which favours no direction, as grey."""

    name: Literal["scharr"] = "scharr"
    axis: Axis = Field("mag", description="horizontal or vertical gradient, or its magnitude")
    scale: float = Field(
        1, ge=0, le=100, description="factor on the gradient", json_schema_extra={"unit": "ratio"}
    )

    example: ClassVar = {"name": "scharr", "scale": 0.25}
    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    cpu_bytes_per_pixel: ClassVar = (10, 18)
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²)) of
        the luma.

        The weights come from `cv2.Scharr` (H. Scharr, dissertation, 2000). uint8 (H, W, C) both
        ways.
        """
        grey, border = np.ascontiguousarray(luma(pixels)), cv2.BORDER_REPLICATE
        x = np.asarray(cv2.Scharr(grey, cv2.CV_16S, 1, 0, borderType=border), np.int16)
        y = np.asarray(cv2.Scharr(grey, cv2.CV_16S, 0, 1, borderType=border), np.int16)
        return edges(pixels, x, y, self.axis, tones(LONGEST, self.scale))

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, the axis and the tones (`struct Edges`)."""
        return slope_data(self.name, self.axis, tones(LONGEST, self.scale))
