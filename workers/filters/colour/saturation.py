"""The saturation filter."""

import struct
from typing import ClassVar, Literal

from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend, join_alpha, lumas, split_alpha
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


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
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("saturation"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Color`: a blend of the luma and the image, uint8 (H,
        W, C).
        """
        colour, alpha = split_alpha(pixels)
        return join_alpha(blend(lumas(colour), colour, self.factor), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the factor as float32, the type in which `blend` computes."""
        return struct.pack("<f", self.factor)
