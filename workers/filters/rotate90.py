"""The rotate90 filter."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter


class Rotate90(Filter):
    """Turn the image clockwise by quarter turns; an odd number of them swaps its sides."""

    name: Literal["rotate90"] = "rotate90"
    turns: int = Field(
        1, ge=0, le=3, description="clockwise", json_schema_extra={"unit": "quarter turn"}
    )

    example: ClassVar = {"name": "rotate90", "turns": 1}
    alpha_rule: ClassVar = "plane"
    result_shape: ClassVar = "turned"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `Image.transpose`; samples only move."""
        return np.ascontiguousarray(np.rot90(pixels, -self.turns))
