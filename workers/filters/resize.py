"""The resize filter."""

from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageOps
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter

_METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Resize(Filter):
    """Another size; of width and height, one that is left out follows from the other."""

    name: Literal["resize"] = "resize"
    width: int | None = Field(
        None, ge=1, le=65_500, description="of the result", json_schema_extra={"unit": "px"}
    )
    height: int | None = Field(
        None, ge=1, le=65_500, description="of the result", json_schema_extra={"unit": "px"}
    )
    fit: Literal["contain", "cover", "fill"] = Field(
        "contain",
        description="contain: the whole image, no larger than width and height; cover: exactly "
        "these, what sticks out is cut off evenly; fill: exactly these, stretched",
    )
    method: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        "bilinear", description="how new pixels are made of old ones; all but nearest antialias"
    )

    example: ClassVar = {"name": "resize", "width": 90, "height": 90, "fit": "cover"}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "outside ignored"
    result_shape: ClassVar = "resized"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `Image.resize`, integers of 22 bits; to cover, `ImageOps.fit`."""
        source = np.ascontiguousarray(pixels)
        image = Image.fromarray(source[:, :, 0] if source.shape[2] == 1 else source)
        height, width = self.size_after(image.height, image.width)
        method = _METHODS[self.method]
        if self.fit == "cover":
            resized = ImageOps.fit(image, (width, height), method)
        else:
            resized = image.resize((width, height), method)
        return np.array(resized).reshape(height, width, pixels.shape[2])

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Sides that follow are rounded to the nearest, halves to even, as `ImageOps.contain`."""
        if self.height is None and self.width is None:
            return height, width
        rows = self.height or max(1, round(height / width * (self.width or 0)))
        columns = self.width or max(1, round(width / height * rows))
        if self.fit != "contain" or self.height is None or self.width is None:
            return rows, columns
        if width / height > columns / rows:
            return max(1, round(height / width * columns)), columns
        return rows, min(columns, max(1, round(width / height * rows)))
