"""The otsu filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import as_grey
from workers.filters.luma import luma


class Otsu(Filter):
    """Black and white, parted where the lumas of the image fall into two groups by themselves."""

    name: Literal["otsu"] = "otsu"

    example: ClassVar = {"name": "otsu"}
    alpha_rule: ClassVar = "point"

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.threshold` with THRESH_OTSU on the luma (N. Otsu, 1979)."""
        grey = np.ascontiguousarray(luma(pixels))
        _, parted = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        return as_grey(np.asarray(parted, np.uint8), pixels)
