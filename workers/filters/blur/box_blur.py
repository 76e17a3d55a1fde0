"""The box_blur filter."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.box_sums import device_box
from workers.filters.arithmetic.premultiplied import filtered
from workers.filters.arithmetic.separable import Band, Place, Planes, Sums, two_passes
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape

_WITH_ALPHA = Pass("box_alpha_sums", 512, 128, channels=(4,))
_SUMS = (
    (31, Pass("box_sums", 960, 180, channels=(1, 3))),
    (191, Pass("box_sums", 640, 270, channels=(1, 3))),
    (255, Pass("box_sums", 512, 360, channels=(1, 3))),
    (500, Pass("box_far_sums", 960, 270, channels=(1, 3))),
)
"""By the largest radius, as filters/blur/box_blur_opaque.cu has them."""

BY_OPENCV = 73
"""The largest radius for which OpenCV's own mean is exact."""


class BoxBlur(Filter):
    """Average over a square of 2 · radius + 1 pixels a side."""

    name: Literal["box_blur"] = "box_blur"
    radius: int = Field(
        2,
        ge=0,
        le=500,
        description="pixels from the centre of the square to its edge",
        json_schema_extra={"unit": "px"},
    )

    example: ClassVar = {"name": "box_blur", "radius": 2}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "replicate"
    passes: ClassVar = (*(each for _, each in _SUMS), _WITH_ALPHA)

    def apply(self, pixels: Pixels) -> Pixels:
        """(2·S + k²) // (2·k²) with k = 2r+1 and S the exact sum: cv2.blur, half rounded up.

        cv2.blur itself is a unit off in some samples from a radius of about 499 on; up to 73 the
        rounding of its float32 cannot matter, as no mean is nearer to a half than 1 / (2·k²).
        """
        side = 2 * self.radius + 1
        if self.radius <= BY_OPENCV and pixels.shape[2] < 4:
            source, border = np.ascontiguousarray(pixels), cv2.BORDER_REPLICATE
            mean = cv2.blur(source, (side, side), borderType=border)
            return np.asarray(mean, np.uint8).reshape(pixels.shape)

        def sums(planes: Planes) -> Iterator[tuple[Place, Sums]]:
            def columns(band: Band) -> Sums:
                return _sums(band.astype(np.float64), (1, side))

            return two_passes(planes, partial(_sums, box=(side, 1)), columns)

        def rounded(total: Sums) -> Sums:
            return np.floor((2 * total + side * side) / (2 * side * side))

        return filtered(pixels, sums, rounded)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Without alpha by the radius, then with alpha."""
        return (next(each for most, each in _SUMS if self.radius <= most), _WITH_ALPHA)

    def device_data(self, shape: Shape) -> bytes:
        """`struct Box`."""
        return device_box(self.radius)


def _sums(band: Band, box: tuple[int, int]) -> Sums:
    border = cv2.BORDER_REPLICATE
    total = cv2.boxFilter(band, cv2.CV_64F, box, normalize=False, borderType=border)
    return np.asarray(total, np.float64).reshape(band.shape)
