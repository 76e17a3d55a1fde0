"""The sobel filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha
from workers.filters.luma import luma


class Sobel(Filter):
    """Show edges: the gradient of the luma by the 3 × 3 Sobel operator, as grey."""

    name: Literal["sobel"] = "sobel"
    axis: Literal["x", "y", "mag"] = Field(
        "mag", description="horizontal or vertical gradient, or its magnitude"
    )
    scale: float = Field(1, ge=0, le=100, description="factor on the gradient")

    example: ClassVar = {"name": "sobel", "axis": "mag"}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"

    def apply(self, pixels: Pixels) -> Pixels:
        """min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²))."""
        colour, alpha = split_alpha(pixels)
        edges = np.floor(self._gradient(luma(pixels)) * self.scale + 0.5)
        grey = np.minimum(edges, 255).astype(np.uint8)
        return join_alpha(np.repeat(grey[:, :, None], colour.shape[2], 2), alpha)

    def _gradient(self, grey: NDArray[np.uint8]) -> NDArray[np.float64]:
        source = np.ascontiguousarray(grey)
        x, y = (
            cv2.Sobel(source, cv2.CV_16S, dx, dy, borderType=cv2.BORDER_REPLICATE).astype(
                np.float64
            )
            for dx, dy in ((1, 0), (0, 1))
        )
        if self.axis == "mag":
            return np.rint(np.sqrt(x * x + y * y))
        return np.abs(x if self.axis == "x" else y)
