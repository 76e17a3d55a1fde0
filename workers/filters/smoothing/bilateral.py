"""The bilateral filter."""

import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, repeated, split_alpha
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape

MOST_REACH = 16
"""Of the largest diameter."""


class Bilateral(Filter):
    """Smooth surfaces and keep edges: neighbours count by nearness and by likeness."""

    name: Literal["bilateral"] = "bilateral"
    diameter: int = Field(
        9, ge=1, le=33, description="of the neighbourhood", json_schema_extra={"unit": "px"}
    )
    sigma_color: float = Field(
        50,
        ge=1,
        le=255,
        description="how unlike a neighbour may be",
        json_schema_extra={"unit": "level"},
    )
    sigma_space: float = Field(
        50,
        ge=0.1,
        le=100,
        description="how far away it may be",
        json_schema_extra={"unit": "px"},
    )

    example: ClassVar = {"name": "bilateral", "diameter": 9}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "mirror"
    tolerance: ClassVar = "exact; on a GPU within 1 on at most 0.01 % of samples"
    device_tolerance: ClassVar = 1e-4
    passes: ClassVar = (Pass("bilateral", 64, 16),)

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.bilateralFilter`: round window, L1 distance of colours (Tomasi, Manduchi 1998).

        Through IPP it truncates grey images at diameters up to 5, so there grey is three channels.
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1 and self.diameter <= 5:
            return self._smoothed(repeated(colour[:, :, 0], 3), 3 * self.sigma_color)[
                :, :, :1
            ].copy()
        return join_alpha(self._smoothed(colour, self.sigma_color), alpha)

    def _smoothed(self, colour: Pixels, sigma_color: float) -> Pixels:
        smooth = cv2.bilateralFilter(
            np.ascontiguousarray(colour),
            self.diameter,
            sigma_color,
            self.sigma_space,
            borderType=cv2.BORDER_REFLECT_101,
        )
        return np.asarray(smooth, np.uint8).reshape(colour.shape)

    def device_data(self, shape: Shape) -> bytes:
        """`struct Bilateral`: OpenCV's weights, made in float64."""
        radius = max(self.diameter // 2, 1)
        rows, columns = np.arange(MOST_REACH + 1), np.arange(-MOST_REACH, MOST_REACH + 1)
        reach = [math.isqrt(max(radius**2 - n**2, 0)) for n in range(MOST_REACH + 1)]
        space = np.exp(np.add.outer(rows**2, columns**2) * (-0.5 / self.sigma_space**2))
        colour = np.exp(np.arange(3 * 255 + 1) ** 2 * (-0.5 / self.sigma_color**2))
        weights = np.concatenate((space.ravel(), colour)).astype("<f4")
        return struct.pack(f"<{MOST_REACH + 2}i", radius, *reach) + bytes(weights.data)
