"""The resize filter."""

import math
import struct
from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageOps
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.base import Filter
from workers.filters.geometry import resampling
from workers.kernels.items import Pass, Shape
from workers.preprocess import columns_first

_METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

LARGE = 8 << 20
"""Pixels of the source or of the result from which an image is resized in stripes."""


class Resize(Filter):
    """Change the size; if width or height is left out, it follows from the other."""

    name: Literal["resize"] = "resize"
    width: int | None = Field(
        None, ge=1, le=65_500, description="width of the result", json_schema_extra={"unit": "px"}
    )
    height: int | None = Field(
        None, ge=1, le=65_500, description="height of the result", json_schema_extra={"unit": "px"}
    )
    fit: Literal["contain", "cover", "fill"] = Field(
        "contain",
        description="contain: the whole image, no larger than width and height; cover: exactly "
        "this size, the excess is cut off evenly; fill: exactly this size, stretched",
    )
    method: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        "bilinear", description="resampling method; all but nearest antialias"
    )

    example: ClassVar = {"name": "resize", "width": 90, "height": 90, "fit": "cover"}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "outside ignored"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (
        Pass("resize_weights"),
        Pass("resize", of_result=True),
    )

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.resize`, or `ImageOps.fit` to cover, of uint8 (H, W, C).

        Pillow resamples with integer weights of 22 bits, along both axes in the order of
        `columns_first` (libImaging/Resample.c), and antialiases by widening its window when it
        shrinks. Large images are resized in stripes, with the same bytes.
        """
        if self._is_large(pixels.shape):
            height, width = self.size_after(*pixels.shape[:2])
            box = self._box(pixels.shape, height, width)
            return resampling.resized(pixels, (height, width), _METHODS[self.method], box)
        source = np.ascontiguousarray(pixels)
        image = Image.fromarray(source[:, :, 0] if source.shape[2] == 1 else source)
        height, width = self.size_after(image.height, image.width)
        method = _METHODS[self.method]
        if self.fit == "cover":
            resized = ImageOps.fit(image, (width, height), method)
        else:
            resized = image.resize((width, height), method)
        return np.array(resized).reshape(height, width, pixels.shape[2])

    def memory(self, shape: Shape) -> int:
        """Return the bytes that `apply` takes at a time beside its input, by estimate."""
        size = self.size_after(*shape[:2])
        box = self._box(shape, *size)
        if self._is_large(shape):
            return resampling.memory(shape, size, box)
        return resampling.memory_at_once(shape, size, box)

    def _is_large(self, shape: Shape) -> bool:
        """Return whether the source or the result has more pixels than one call should take."""
        return max(shape[0] * shape[1], math.prod(self.size_after(*shape[:2]))) > LARGE

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Resize`; the device computes the weights itself."""
        height, width = self.size_after(*shape[:2])
        starts, scales, taps = self._seen(shape)
        method = list(_METHODS).index(self.method)
        if (height, width) == shape[:2] and scales == (1, 1):
            method = 0  # Pillow copies, without a way by premultiplied colours
        by_columns = columns_first(shape[:2], (height, width))
        return struct.pack("<4d6i", *starts, *scales, width, height, *taps, method, by_columns)

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes for each column's and row's first source pixel, count and weights (4
        bytes each).
        """
        height, width = self.size_after(*shape[:2])
        _, _, (across, down) = self._seen(shape)
        return 4 * (width * (2 + across) + height * (2 + down))

    def _seen(
        self, shape: Shape
    ) -> tuple[tuple[float, float], tuple[float, float], tuple[int, int]]:
        """Return, across and down: the start of the source box, source pixels a result pixel, and
        taps.

        The box is rounded to float32 as in Pillow.
        """
        height, width = self.size_after(*shape[:2])
        left, top, right, bottom = np.array(self._box(shape, height, width), np.float32)
        scales = float(right - left) / width, float(bottom - top) / height
        support = max(1, list(_METHODS).index(self.method))
        across, down = (math.ceil(support * max(scale, 1)) * 2 + 1 for scale in scales)
        return (float(left), float(top)), scales, (across, down)

    def _box(self, shape: Shape, rows: int, columns: int) -> tuple[float, float, float, float]:
        """Return the source box (left, top, right, bottom) in pixels: the image, or what
        `ImageOps.fit` keeps.
        """
        (height, width), ratio = shape[:2], columns / rows
        seen_height, seen_width = float(height), float(width)
        if self.fit == "cover" and width / height > ratio:
            seen_width = ratio * height
        elif self.fit == "cover" and width / height < ratio:
            seen_height = width / ratio
        left, top = (width - seen_width) * 0.5, (height - seen_height) * 0.5
        return left, top, left + seen_width, top + seen_height

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width in pixels.

        A side that follows from the other is rounded to the nearest, halves to even, as in
        `ImageOps.contain`.
        """
        if self.height is None and self.width is None:
            return height, width
        rows = self.height or max(1, round(height / width * (self.width or 0)))
        columns = self.width or max(1, round(width / height * rows))
        if self.fit != "contain" or self.height is None or self.width is None:
            return rows, columns
        if width / height > columns / rows:
            return max(1, round(height / width * columns)), columns
        return rows, min(columns, max(1, round(width / height * rows)))
