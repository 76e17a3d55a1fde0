"""The posterize filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, TABLE_PASSES, through_table
from workers.filters.base import Filter


class Posterize(Filter):
    """Keep only the highest bits of every colour."""

    name: Literal["posterize"] = "posterize"
    bits: int = Field(
        4, ge=1, le=8, description="bits that are kept", json_schema_extra={"unit": "bit"}
    )

    example: ClassVar = {"name": "posterize", "bits": 3}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.posterize` of uint8 (H, W, C); alpha is copied."""
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256, 1, 1)."""
        dropped = 8 - self.bits
        return np.asarray(LEVELS >> dropped << dropped, np.uint8)
