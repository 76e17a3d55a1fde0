"""The invert filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, TABLE_PASSES, through_table
from workers.filters.base import Filter
from workers.kernels.items import Shape


class Invert(Filter):
    """Turn every colour into its complement."""

    name: Literal["invert"] = "invert"

    example: ClassVar = {"name": "invert"}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """255 - x, Pillow's `ImageOps.invert`."""
        return through_table(pixels, self.table())

    def device_data(self, shape: Shape) -> bytes:
        """The table."""
        return self.table().tobytes()

    def table(self) -> NDArray[np.uint8]:
        """What each level becomes."""
        return 255 - LEVELS
