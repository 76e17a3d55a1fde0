"""The invert filter."""

from typing import ClassVar, Literal

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import LEVELS, through_table


class Invert(Filter):
    """Turn every colour into its complement."""

    name: Literal["invert"] = "invert"

    example: ClassVar = {"name": "invert"}
    alpha_rule: ClassVar = "point"

    def apply(self, pixels: Pixels) -> Pixels:
        """255 - x, Pillow's `ImageOps.invert`."""
        return through_table(pixels, 255 - LEVELS)
