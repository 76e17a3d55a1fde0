"""The invert filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, TABLE_PASSES, through_table
from workers.filters.base import Filter


class Invert(Filter):
    """Turn every colour into its complement."""

    name: Literal["invert"] = "invert"

    example: ClassVar = {"name": "invert"}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return 255 - x, Pillow's `ImageOps.invert`, of uint8 (H, W, C); alpha is copied."""
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256, 1, 1)."""
        return 255 - LEVELS
