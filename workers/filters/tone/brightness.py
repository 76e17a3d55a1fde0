"""The brightness filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, TABLE_PASSES, blend, through_table
from workers.filters.base import Filter


class Brightness(Filter):
    """Multiply all colours by a factor."""

    name: Literal["brightness"] = "brightness"
    factor: float = Field(
        1,
        ge=0,
        le=8,
        description="0 gives black, 1 the original",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "brightness", "factor": 1.3}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Brightness` of uint8 (H, W, C); alpha is copied."""
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256, 1, 1)."""
        return blend(0, LEVELS, self.factor)
