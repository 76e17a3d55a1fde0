"""The posterize filter."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import LEVELS, through_table


class Posterize(Filter):
    """Keep only the highest bits of every colour."""

    name: Literal["posterize"] = "posterize"
    bits: int = Field(
        4, ge=1, le=8, description="bits that are kept", json_schema_extra={"unit": "bit"}
    )

    example: ClassVar = {"name": "posterize", "bits": 3}
    alpha_rule: ClassVar = "point"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageOps.posterize`."""
        dropped = 8 - self.bits
        return through_table(pixels, np.asarray(LEVELS >> dropped << dropped, np.uint8))
