"""The flip filter."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter


class Flip(Filter):
    """Mirror the image."""

    name: Literal["flip"] = "flip"
    direction: Literal["horizontal", "vertical"] = Field(
        "horizontal", description="left and right, or top and bottom change places"
    )

    example: ClassVar = {"name": "flip"}
    alpha_rule: ClassVar = "plane"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageOps.mirror` and `ImageOps.flip`."""
        return np.ascontiguousarray(np.flip(pixels, 1 if self.direction == "horizontal" else 0))
