"""The saturation filter."""

from typing import ClassVar, Literal

from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import blend, join_alpha, repeated, split_alpha
from workers.filters.luma import luma


class Saturation(Filter):
    """Move all colours away from their luma, or towards it."""

    name: Literal["saturation"] = "saturation"
    factor: float = Field(
        1,
        ge=0,
        le=8,
        description="0 gives grey, 1 the original",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "saturation", "factor": 1.5}
    alpha_rule: ClassVar = "point"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageEnhance.Color`."""
        colour, alpha = split_alpha(pixels)
        grey = repeated(luma(pixels), colour.shape[2])
        return join_alpha(blend(grey, colour, self.factor), alpha)
