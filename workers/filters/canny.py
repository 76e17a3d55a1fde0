"""The canny filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import repeated
from workers.filters.gaussian_blur import GaussianBlur
from workers.filters.luma import luma

_SMALLEST_SIGMA = 0.1


class Canny(Filter):
    """Thin white lines where there are edges."""

    name: Literal["canny"] = "canny"
    low: float = Field(
        100,
        ge=0,
        le=2040,
        description="gradient from which an edge goes on",
        json_schema_extra={"unit": "level"},
    )
    high: float = Field(
        200,
        ge=0,
        le=2040,
        description="gradient from which an edge begins",
        json_schema_extra={"unit": "level"},
    )
    sigma: float = Field(
        0,
        ge=0,
        le=100,
        description="of the gaussian_blur before, below 0.1 none",
        json_schema_extra={"unit": "px"},
    )

    example: ClassVar = {"name": "canny", "low": 60, "high": 160, "sigma": 1.4}
    alpha_rule: ClassVar = "drop"
    border: ClassVar = "replicate"
    result_shape: ClassVar = "no alpha"

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.Canny`, aperture 3, L1 gradient, on the luma (J. Canny, 1986); no alpha."""
        grey = luma(pixels)[..., None]
        if self.sigma >= _SMALLEST_SIGMA:
            grey = GaussianBlur(sigma=self.sigma, sigma_y=None).apply(grey)
        edges = cv2.Canny(np.ascontiguousarray(grey[..., 0]), self.low, self.high)
        return repeated(np.asarray(edges, np.uint8), min(pixels.shape[2], 3))
