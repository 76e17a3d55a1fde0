"""The flip filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.base import Filter
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
