"""The sobel filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma
from workers.filters.base import Filter
from workers.filters.edges.gradient import (
    EDGE_PASSES,
    Axis,
    Gradient,
    edges,
    slope_data,
    tones,
)
from workers.kernels.items import Shape

LONGEST = 1442
"""The longest gradient: rint(sqrt(1020² + 1020²))."""


class Sobel(Filter):
    """Show edges: the gradient of the luma by the 3 × 3 Sobel operator, as grey."""

    name: Literal["sobel"] = "sobel"
    axis: Axis = Field("mag", description="horizontal or vertical gradient, or its magnitude")
    scale: float = Field(
        1, ge=0, le=100, description="factor on the gradient", json_schema_extra={"unit": "ratio"}
    )

    example: ClassVar = {"name": "sobel", "axis": "mag"}
    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    cpu_bytes_per_pixel: ClassVar = (8, 16)
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²)) of
        the luma.

        The weights come from `cv2.Sobel` with aperture 3. uint8 (H, W, C) both ways.
        """
        x, y = _gradients(luma(pixels))
        return edges(pixels, x, y, self.axis, tones(LONGEST, self.scale))

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, the axis and the tones (`struct Edges`)."""
        return slope_data(self.name, self.axis, tones(LONGEST, self.scale))


def _gradients(grey: NDArray[np.uint8]) -> tuple[Gradient, Gradient]:
    """Return the horizontal and the vertical gradient of uint8 (H, W), int16 within ±1020."""
    source, border = np.ascontiguousarray(grey), cv2.BORDER_REPLICATE
    across = cv2.Sobel(source, cv2.CV_16S, 1, 0, borderType=border)
    down = cv2.Sobel(source, cv2.CV_16S, 0, 1, borderType=border)
    return np.asarray(across, np.int16), np.asarray(down, np.int16)
