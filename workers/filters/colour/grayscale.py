"""The grayscale filter."""

import struct
from typing import ClassVar, Literal

from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend, join_alpha, lumas, split_alpha
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Grayscale(Filter):
    """Fade colours to their luma; the number of channels stays."""

    name: Literal["grayscale"] = "grayscale"
    amount: float = Field(
        1,
        ge=0,
        le=1,
        description="0 keeps the colours, 1 removes them",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "grayscale"}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("grayscale"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `convert("L")`, blended with the original: uint8 (H, W, C)."""
        colour, alpha = split_alpha(pixels)
        return join_alpha(blend(colour, lumas(colour), self.amount), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the amount as float32, the type in which `blend` computes."""
        return struct.pack("<f", self.amount)
