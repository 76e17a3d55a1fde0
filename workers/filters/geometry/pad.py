"""The pad filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.borders import OPENCV, Border
from workers.filters.arithmetic.colour import luma
from workers.filters.base import COLOUR_ALPHA, Filter, HexColourAlpha, rgba
from workers.kernels.items import Pass, Shape


class Pad(Filter):
    """Add rows and columns around the image."""

    name: Literal["pad"] = "pad"
    left: int = Field(
        0, ge=0, le=10_000, description="columns added", json_schema_extra={"unit": "px"}
    )
    top: int = Field(0, ge=0, le=10_000, description="rows added", json_schema_extra={"unit": "px"})
    right: int = Field(
        0, ge=0, le=10_000, description="columns added", json_schema_extra={"unit": "px"}
    )
    bottom: int = Field(
        0, ge=0, le=10_000, description="rows added", json_schema_extra={"unit": "px"}
    )
    border_mode: Border = Field(
        "constant",
        description="content of the border: constant is the background, others continue the image",
    )
    background: HexColourAlpha = Field(
        "00000000",
        description="colour of a constant border; its opacity counts if the image has alpha",
        json_schema_extra=COLOUR_ALPHA,
    )

    example: ClassVar = {"name": "pad", "left": 20, "right": 20, "border_mode": "mirror"}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    border: ClassVar = "border_mode"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("copy_window", of_result=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.copyMakeBorder` (equal to `numpy.pad`), uint8 (h, w, C).

        A grey image gets the luma of the background.
        """
        padded = cv2.copyMakeBorder(
            np.ascontiguousarray(pixels),
            self.top,
            self.bottom,
            self.left,
            self.right,
            OPENCV[self.border_mode],
            value=self._background(pixels.shape[2]).tolist(),
        )
        shape = (*self.size_after(*pixels.shape[:2]), pixels.shape[2])
        return np.asarray(padded, np.uint8).reshape(shape)

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Window`, which is larger than the image."""
        height, width = self.size_after(*shape[:2])
        border = [*OPENCV].index(self.border_mode)
        window = struct.pack("<5i", -self.left, -self.top, width, height, border)
        return window + self._background(shape[2]).tobytes().ljust(4, b"\0")

    def _background(self, channels: int) -> Pixels:
        """Return the background as uint8: a sample for a grey image, else four."""
        colour = np.array(rgba(self.background), np.uint8)
        return colour if channels > 1 else luma(colour.reshape(1, 1, 4)).ravel()

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width including the added rows and columns, in pixels."""
        return self.top + height + self.bottom, self.left + width + self.right
