"""The sobel filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.image import Pixels
from workers.filters.bands import bands
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, repeated, split_alpha
from workers.filters.luma import luma


class Sobel(Filter):
    """Show edges: the gradient of the luma by the 3 × 3 Sobel operator, as grey."""

    name: Literal["sobel"] = "sobel"
    axis: Literal["x", "y", "mag"] = Field(
        "mag", description="horizontal or vertical gradient, or its magnitude"
    )
    scale: float = Field(
        1, ge=0, le=100, description="factor on the gradient", json_schema_extra={"unit": "ratio"}
    )

    example: ClassVar = {"name": "sobel", "axis": "mag"}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"

    def apply(self, pixels: Pixels) -> Pixels:
        """min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²))."""
        colour, alpha = split_alpha(pixels)
        x, y = _gradients(luma(pixels))
        grey = np.empty(x.shape, np.uint8)
        for rows in bands(*x.shape):
            edges = np.floor(self._length(x[rows], y[rows]) * self.scale + 0.5)
            grey[rows] = np.minimum(edges, 255)
        return join_alpha(repeated(grey, colour.shape[2]), alpha)

    def _length(self, x: NDArray[np.int16], y: NDArray[np.int16]) -> NDArray[np.float64]:
        if self.axis == "mag":
            across, down = x.astype(np.float64), y.astype(np.float64)
            return np.rint(np.sqrt(across * across + down * down))
        return np.abs(x if self.axis == "x" else y).astype(np.float64)


def _gradients(grey: NDArray[np.uint8]) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Both gradients of (H, W), each within ±1020."""
    source, border = np.ascontiguousarray(grey), cv2.BORDER_REPLICATE
    across = cv2.Sobel(source, cv2.CV_16S, 1, 0, borderType=border)
    down = cv2.Sobel(source, cv2.CV_16S, 0, 1, borderType=border)
    return np.asarray(across, np.int16), np.asarray(down, np.int16)
