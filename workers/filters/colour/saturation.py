"""The saturation filter."""

import struct
from typing import ClassVar, Literal

from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend, join_alpha, split_alpha
from workers.filters.arithmetic.luma import lumas
from workers.filters.base import Filter
from workers.kernels.items import LINE, Pass, Shape


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
    passes: ClassVar = (Pass("saturation", LINE, flat=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageEnhance.Color`."""
        colour, alpha = split_alpha(pixels)
        return join_alpha(blend(lumas(colour), colour, self.factor), alpha)

    def device_data(self, shape: Shape) -> bytes:
        """The factor in float32, as `blend` has it."""
        return struct.pack("<f", self.factor)
