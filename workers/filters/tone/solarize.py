"""The solarize filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, TABLE_PASSES, through_table
from workers.filters.base import Filter


class Solarize(Filter):
    """Invert every colour from a threshold on."""

    name: Literal["solarize"] = "solarize"
    threshold: int = Field(
        128,
        ge=0,
        le=256,
        description="darkest level that is inverted; 256 inverts none",
        json_schema_extra={"unit": "level"},
    )

    example: ClassVar = {"name": "solarize"}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.solarize` of uint8 (H, W, C); alpha is copied."""
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256, 1, 1)."""
        return np.where(self.threshold > LEVELS, LEVELS, 255 - LEVELS)
