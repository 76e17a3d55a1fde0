"""The sobel filter."""

import struct
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
from workers.kernels.items import Pass, Shape

LONGEST = 1442
"""The longest gradient: rint(sqrt(1020² + 1020²))."""


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
    passes: ClassVar = (Pass("sobel", 128, 16),)

    def apply(self, pixels: Pixels) -> Pixels:
        """min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²))."""
        colour, alpha = split_alpha(pixels)
        x, y = _gradients(luma(pixels))
        grey, tones = np.empty(x.shape, np.uint8), self._tones()
        for rows in bands(*x.shape):
            grey[rows] = tones[self._length(x[rows], y[rows])]
        return join_alpha(repeated(grey, colour.shape[2]), alpha)

    def device_data(self, shape: Shape) -> bytes:
        """The axis, and the tones."""
        return struct.pack("<i12x", ("x", "y", "mag").index(self.axis)) + self._tones().tobytes()

    def _tones(self) -> NDArray[np.uint8]:
        """What a gradient of every length becomes."""
        edges = np.floor(np.arange(LONGEST + 1) * self.scale + 0.5)
        return np.asarray(np.minimum(edges, 255), np.uint8)

    def _length(self, x: NDArray[np.int16], y: NDArray[np.int16]) -> NDArray[np.int16]:
        if self.axis == "mag":
            across, down = x.astype(np.float64), y.astype(np.float64)
            return np.rint(np.sqrt(across * across + down * down)).astype(np.int16)
        return np.abs(x if self.axis == "x" else y)


def _gradients(grey: NDArray[np.uint8]) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Both gradients of (H, W), each within ±1020."""
    source, border = np.ascontiguousarray(grey), cv2.BORDER_REPLICATE
    across = cv2.Sobel(source, cv2.CV_16S, 1, 0, borderType=border)
    down = cv2.Sobel(source, cv2.CV_16S, 0, 1, borderType=border)
    return np.asarray(across, np.int16), np.asarray(down, np.int16)
