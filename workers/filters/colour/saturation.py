"""The saturation and grayscale filters: blends of an image and its luma."""

import struct
from typing import ClassVar, Literal

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend, join_alpha, lumas, split_alpha
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape


class Saturation(Filter):
    """Move all colours away from their luma, or towards it."""

    name: Literal["saturation"] = "saturation"
    factor: float = number(1, 0, 8, "ratio", "0 gives grey, 1 the original")

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


class Grayscale(Filter):
    """Fade colours to their luma; the number of channels stays."""

    name: Literal["grayscale"] = "grayscale"
    amount: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 removes them")

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
