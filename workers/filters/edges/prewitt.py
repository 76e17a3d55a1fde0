"""The prewitt filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma
from workers.filters.base import Filter
from workers.filters.edges.gradient import EDGE_PASSES, Axis, edges, slope_data, tones
from workers.kernels.items import Shape

LONGEST = 1082
"""An upper bound of the gradient's length: rint(sqrt(765² + 765²))."""

_SLOPE = np.array([[-1.0, 0.0, 1.0]] * 3)
"""The horizontal operator, float64 (3, 3); the vertical one is its transpose."""


class Prewitt(Filter):
    """Show edges by the 3 × 3 Prewitt operator, as grey."""

    name: Literal["prewitt"] = "prewitt"
    axis: Axis = Field("mag", description="horizontal or vertical gradient, or its magnitude")
    scale: float = Field(
        1, ge=0, le=100, description="factor on the gradient", json_schema_extra={"unit": "ratio"}
    )

    example: ClassVar = {"name": "prewitt"}
    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    cpu_bytes_per_pixel: ClassVar = (9, 17)
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²)) of
        the luma.

        Source: J. Prewitt, "Object enhancement and extraction", 1970. uint8 (H, W, C) both ways.
        """
        grey, border = np.ascontiguousarray(luma(pixels)), cv2.BORDER_REPLICATE
        x = cv2.filter2D(grey, cv2.CV_16S, _SLOPE, borderType=border)
        y = cv2.filter2D(grey, cv2.CV_16S, _SLOPE.T, borderType=border)
        across, down = np.asarray(x, np.int16), np.asarray(y, np.int16)
        return edges(pixels, across, down, self.axis, tones(LONGEST, self.scale))

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, the axis and the tones (`struct Edges`)."""
        return slope_data(self.name, self.axis, tones(LONGEST, self.scale))
