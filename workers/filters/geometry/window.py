"""The crop and pad filters, which copy a window of the image."""

import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from workers.filters.arithmetic.borders import OPENCV, Border
from workers.filters.arithmetic.colour import luma
from workers.filters.base import WITH_ALPHA, Filter, HexColourAlpha, colour, number, rgba
from workers.kernels.items import Pass, Shape


class Crop(Filter):
    """Cut out a rectangle."""

    name: Literal["crop"] = "crop"
    left: int = number(0, 0, 1_000_000, "px", "columns cut off at the left")
    top: int = number(0, 0, 1_000_000, "px", "rows cut off at the top")
    width: int | None = number(None, 1, 1_000_000, "px", "columns kept; all of them if left out")
    height: int | None = number(None, 1, 1_000_000, "px", "rows kept; all of them if left out")

    example: ClassVar = {"name": "crop", "left": 8, "top": 4, "width": 54, "height": 40}
    alpha_rule: ClassVar = "plane"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("copy_window", of_result=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the rectangle, uint8 (h, w, C); samples keep their values.

        Raises InvalidParameter if the rectangle does not lie inside the image.
        """
        height, width = self.size_after(*pixels.shape[:2])
        kept = pixels[self.top : self.top + height, self.left : self.left + width]
        return np.array(kept, order="C")

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the rectangle.

        Raises InvalidParameter if the rectangle leaves the image.
        """
        return math.prod(self.shape_after(shape))

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Window`, which lies inside the image."""
        height, width = self.size_after(*shape[:2])
        return struct.pack("<6i", self.left, self.top, width, height, 0, 0)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the rectangle, in pixels.

        Raises InvalidParameter if the rectangle leaves the image.
        """
        rows = height - self.top if self.height is None else self.height
        columns = width - self.left if self.width is None else self.width
        if min(rows, columns) < 1 or self.top + rows > height or self.left + columns > width:
            asked = f"{max(columns, 1)} × {max(rows, 1)} pixels from ({self.left}, {self.top}) on"
            raise InvalidParameter(f"crop: {asked} leave an image of {width} × {height} pixels")
        return rows, columns


class Pad(Filter):
    """Add rows and columns around the image."""

    name: Literal["pad"] = "pad"
    left: int = number(0, 0, 10_000, "px", "columns added")
    top: int = number(0, 0, 10_000, "px", "rows added")
    right: int = number(0, 0, 10_000, "px", "columns added")
    bottom: int = number(0, 0, 10_000, "px", "rows added")
    border_mode: Border = Field(
        "constant",
        description="content of the border: constant is the background, others continue the image",
    )
    background: HexColourAlpha = colour(
        "00000000",
        "colour of a constant border; its opacity counts if the image has alpha",
        WITH_ALPHA,
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
