"""The sharpen filter."""

import struct
from typing import ClassVar, Literal

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend, join_alpha, split_alpha
from workers.filters.base import Filter, number
from workers.filters.sharpen.preset import Preset
from workers.kernels.items import Pass, Shape


class Sharpen(Filter):
    """Blend the image with a smoothed version, towards it or away from it."""

    name: Literal["sharpen"] = "sharpen"
    factor: float = number(2, 0, 10, "ratio", "0 smooths, 1 changes nothing, above 1 sharpens")

    example: ClassVar = {"name": "sharpen", "factor": 2}
    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    border: ClassVar = "copied"
    passes: ClassVar = (Pass("sharpen"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Sharpness` of uint8 (H, W, C); the outermost pixels are not
        smoothed.
        """
        colour, alpha = split_alpha(pixels)
        smooth = Preset(kernel="smooth").apply(colour)
        smooth[[0, -1]], smooth[:, [0, -1]] = colour[[0, -1]], colour[:, [0, -1]]
        return join_alpha(blend(smooth, colour, self.factor), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the factor as float32, the type in which Pillow computes."""
        return struct.pack("<f", self.factor)
