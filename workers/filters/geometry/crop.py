"""The crop filter."""

import math
import struct
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Crop(Filter):
    """Cut out a rectangle."""

    name: Literal["crop"] = "crop"
    left: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="columns cut off at the left",
        json_schema_extra={"unit": "px"},
    )
    top: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="rows cut off at the top",
        json_schema_extra={"unit": "px"},
    )
    width: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="columns kept; all of them if left out",
        json_schema_extra={"unit": "px"},
    )
    height: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="rows kept; all of them if left out",
        json_schema_extra={"unit": "px"},
    )

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
