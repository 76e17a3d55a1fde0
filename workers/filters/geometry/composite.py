"""The composite filter."""

from typing import ClassVar, Literal

import numpy as np

from models.codec.encoder import flatten
from models.domain.image import Image, Pixels
from workers.filters.base import Filter, HexColour, colour, rgba
from workers.kernels.items import Pass, Shape


class Composite(Filter):
    """Lay the image over a colour that shows where it is transparent; the result is opaque."""

    name: Literal["composite"] = "composite"
    background: HexColour = colour("ffffff", "colour behind the image")

    example: ClassVar = {"name": "composite", "background": "ff8800"}
    alpha_rule: ClassVar = "drop"
    row_reach: ClassVar = 0
    result_shape: ClassVar = "no alpha"
    passes: ClassVar = (Pass("composite"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return (c·a + b·(255 - a)) / 255 to the nearest, uint8 (H, W, 1 or 3).

        This equals Pillow's `alpha_composite` (libImaging/AlphaComposite.c) over an opaque colour.
        """
        if pixels.shape[2] < 4:
            return np.array(pixels, order="C")
        behind = rgba(self.background)[:3]
        return np.ascontiguousarray(flatten(Image(np.ascontiguousarray(pixels)), behind).pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the colour in four bytes: red, green, blue, opacity."""
        return bytes(rgba(self.background))
