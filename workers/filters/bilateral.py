"""The bilateral filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha


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

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.bilateralFilter`: round window, L1 distance of colours (Tomasi, Manduchi 1998)."""
        colour, alpha = split_alpha(pixels)
        smooth = cv2.bilateralFilter(
            np.ascontiguousarray(colour),
            self.diameter,
            self.sigma_color,
            self.sigma_space,
            borderType=cv2.BORDER_REFLECT_101,
        )
        return join_alpha(np.asarray(smooth, np.uint8).reshape(colour.shape), alpha)
