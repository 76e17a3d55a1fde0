"""The threshold and otsu filters."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import COUNTS, as_grey, counted, luma
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape


class Threshold(Filter):
    """Reduce the image to two tones: lumas above a value become light, the others black."""

    name: Literal["threshold"] = "threshold"
    value: int = number(128, 0, 255, "level", "lumas above this become light")
    max: int = number(255, 0, 255, "level", "level of the light tone")

    example: ClassVar = {"name": "threshold", "value": 100}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("apply_threshold"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.threshold` with THRESH_BINARY on the luma: `max` where it is strictly above
        `value`.

        uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        light = (luma(pixels) > self.value).astype("uint8")
        return as_grey(light * self.max, pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the threshold and the light tone, uint32 each."""
        return struct.pack("<2I", self.value, self.max)


class Otsu(Filter):
    """Make the image black and white at the luma that separates it best into two groups."""

    name: Literal["otsu"] = "otsu"

    example: ClassVar = {"name": "otsu"}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    passes: ClassVar = (
        COUNTS[1],
        Pass("otsu_threshold"),
        Pass("apply_threshold"),
    )

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.threshold` with THRESH_OTSU on the luma, 0 or 255: uint8 (H, W, C); alpha is
        copied.

        Source: N. Otsu, "A threshold selection method from gray-level histograms", 1979: the
        threshold maximises the variance between both classes.
        """
        grey = np.ascontiguousarray(luma(pixels))
        _, parted = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        return as_grey(np.asarray(parted, np.uint8), pixels)

    def counted(self, pixels: Pixels) -> Threshold:
        """Return a threshold at the luma that separates this image best."""
        value, _ = cv2.threshold(luma(pixels), 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        return Threshold(value=int(value))

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for the counts; the kernels compute the threshold from them."""
        return counted()
