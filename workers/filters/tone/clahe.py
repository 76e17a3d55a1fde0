"""The clahe filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Clahe(Filter):
    """Raise the contrast tile by tile, so that each part of the image gets its own."""

    name: Literal["clahe"] = "clahe"
    clip_limit: float = Field(
        2,
        ge=0.1,
        le=40,
        description="how much contrast a tile may gain",
        json_schema_extra={"unit": "ratio"},
    )
    tiles: int = Field(
        8, ge=1, le=32, description="tiles along each side", json_schema_extra={"unit": "tile"}
    )

    example: ClassVar = {"name": "clahe"}
    alpha_rule: ClassVar = "point"
    border: ClassVar = "mirror"
    passes: ClassVar = (Pass("clahe_tables", each=64), Pass("clahe", 128, 32))

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.createCLAHE` on a grey image, or on Y of YCrCb (K. Zuiderveld, 1994)."""
        equalizer = cv2.createCLAHE(self.clip_limit, (self.tiles, self.tiles))
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1:
            return np.asarray(equalizer.apply(colour[:, :, 0]), np.uint8)[..., None]
        luminance = np.asarray(cv2.cvtColor(np.ascontiguousarray(colour), cv2.COLOR_RGB2YCrCb))
        luminance[:, :, 0] = equalizer.apply(np.ascontiguousarray(luminance[:, :, 0]))
        back = np.asarray(cv2.cvtColor(luminance, cv2.COLOR_YCrCb2RGB), np.uint8)
        return join_alpha(back, alpha)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """A block for every tile, and then all pixels."""
        return (Pass("clahe_tables", each=self.tiles**2), self.passes[1])

    def device_data(self, shape: Shape) -> bytes:
        """`struct Clahe`.

        OpenCV makes both sides longer, by a tile even, when one of them is no multiple.
        """
        sides = list(shape[:2])
        if any(side % self.tiles for side in sides):
            sides = [side + self.tiles - side % self.tiles for side in sides]
        height, width = (side // self.tiles for side in sides)
        clip = max(int(self.clip_limit * (width * height) / 256), 1)
        parts = np.array([width * height, width, height], np.float32)
        scales = np.array([255, 1, 1], np.float32) / parts
        return struct.pack("<4i3f", self.tiles, width, height, clip, *scales)

    def device_scratch(self, shape: Shape) -> int:
        """The tables."""
        return self.tiles**2 * 256
