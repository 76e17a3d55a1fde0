"""The sharpen filter."""

from typing import ClassVar, Literal

from PIL import ImageEnhance
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import by_pillow


class Sharpen(Filter):
    """Blend with a smoothed version, towards it or away from it."""

    name: Literal["sharpen"] = "sharpen"
    factor: float = Field(
        2,
        ge=0,
        le=10,
        description="0 smooths, 1 changes nothing, above 1 sharpens",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "sharpen", "factor": 2}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "copied"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageEnhance.Sharpness`."""
        return by_pillow(pixels, lambda image: ImageEnhance.Sharpness(image).enhance(self.factor))
