"""The colorize filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from PIL import Image, ImageOps

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import (
    LEVELS,
    blend,
    join_alpha,
    lumas,
    repeated,
    split_alpha,
)
from workers.filters.base import Filter, HexColour, colour, number, rgba
from workers.kernels.items import Pass, Shape


class Colorize(Filter):
    """Map tones to two or three colours (a duotone); a grey image becomes RGB."""

    name: Literal["colorize"] = "colorize"
    black: HexColour = colour("000000", "colour of shadows")
    white: HexColour = colour("ffffff", "colour of highlights")
    mid: HexColour | None = colour(None, "colour of the middle tones; between both if left out")
    intensity: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 replaces them")

    example: ClassVar = {"name": "colorize", "black": "221c4a", "white": "ffd9a0"}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    result_shape: ClassVar = "colour"
    passes: ClassVar = (Pass("colorize"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.colorize` of the luma, blended with the original: uint8 (H, W,
        3 or 4).
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1:
            colour = repeated(np.ascontiguousarray(colour[:, :, 0]), 3)
        toned = np.asarray(cv2.LUT(lumas(colour), self._table()), np.uint8).reshape(colour.shape)
        return join_alpha(toned if self.intensity == 1 else self._faded(colour, toned), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the colour of every level in four bytes each, then the intensity as float32."""
        table = np.pad(self._table()[0], ((0, 0), (0, 1)))
        return table.tobytes() + np.float32(self.intensity).tobytes()

    def _faded(self, colour: Pixels, toned: Pixels) -> Pixels:
        return blend(colour, toned, self.intensity)

    def _table(self) -> Pixels:
        """Return the colour of every level, uint8 (1, 256, 3)."""
        levels = Image.fromarray(LEVELS.reshape(1, 256))
        black, white = rgba(self.black)[:3], rgba(self.white)[:3]
        mid = None if self.mid is None else rgba(self.mid)[:3]
        return np.asarray(ImageOps.colorize(levels, black, white, mid))
