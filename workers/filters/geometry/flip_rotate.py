"""The flip and rotate90 filters."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape


class Flip(Filter):
    """Mirror the image."""

    name: Literal["flip"] = "flip"
    direction: Literal["horizontal", "vertical"] = Field(
        "horizontal", description="horizontal swaps left and right, vertical swaps top and bottom"
    )

    example: ClassVar = {"name": "flip"}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    passes: ClassVar = (Pass("flip"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.mirror` or `ImageOps.flip` of uint8 (H, W, C)."""
        turned = cv2.flip(np.ascontiguousarray(pixels), int(self.direction == "horizontal"))
        return np.asarray(turned, np.uint8).reshape(pixels.shape)

    def device_data(self, _shape: Shape) -> bytes:
        """Return two int32 flags: whether columns, and whether rows, change places."""
        across = self.direction == "horizontal"
        return struct.pack("<2i", across, not across)


_TURNS = {
    1: cv2.ROTATE_90_CLOCKWISE,
    2: cv2.ROTATE_180,
    3: cv2.ROTATE_90_COUNTERCLOCKWISE,
}


class Rotate90(Filter):
    """Turn the image clockwise by quarter turns; an odd number of them swaps its sides."""

    name: Literal["rotate90"] = "rotate90"
    turns: int = number(1, 0, 3, "quarter turn", "quarter turns, clockwise")

    example: ClassVar = {"name": "rotate90", "turns": 1}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    result_shape: ClassVar = "turned"
    passes: ClassVar = (Pass("flip"), Pass("rotate90"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.transpose` of uint8 (H, W, C); samples only move."""
        source = np.ascontiguousarray(pixels)
        if self.turns == 0:
            return source.copy()
        turned = cv2.rotate(source, _TURNS[self.turns])
        return np.asarray(turned, np.uint8).reshape(self.shape_after(source.shape))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass that turns for odd numbers of turns, else the pass that mirrors or
        copies.
        """
        return (self.passes[self.turns % 2],)

    def device_data(self, _shape: Shape) -> bytes:
        """Return int32 flags: whether to turn clockwise, or whether columns and rows are
        mirrored.
        """
        if self.turns % 2:
            return struct.pack("<i", self.turns == 1)
        return struct.pack("<2i", self.turns == 2, self.turns == 2)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width in pixels; every quarter turn swaps them."""
        return (width, height) if self.turns % 2 else (height, width)
