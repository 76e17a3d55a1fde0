"""The brightness filter."""

from typing import ClassVar, Literal

from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import LEVELS, blend, through_table


class Brightness(Filter):
    """Scale all colours."""

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

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageEnhance.Brightness`."""
        return through_table(pixels, blend(0, LEVELS, self.factor))
