"""The box_blur filter."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.sums import (
    Band,
    Place,
    Planes,
    Sums,
    device_box,
    filtered,
    two_passes,
)
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape
from workers.kernels.launches import Grid

_WITH_ALPHA = Pass("box_blur_alpha", channels=(4,))
_SUMS = (
    (31, Pass("box_blur_opaque", channels=(1, 3), own_grid=Grid(960, 180))),
    (191, Pass("box_blur_opaque", channels=(1, 3), own_grid=Grid(640, 270))),
    (255, Pass("box_blur_opaque", channels=(1, 3), own_grid=Grid(512, 360))),
    (500, Pass("box_blur_opaque_wide", channels=(1, 3), own_grid=Grid(960, 270))),
)
"""The passes for images without alpha, by the largest radius in pixels that each takes.

The widths and heights are the tile sizes of blur/box_blur_opaque.cu.
"""

BY_OPENCV = 73
"""The largest radius, in pixels, for which `cv2.blur` is exact."""


class BoxBlur(Filter):
    """Average over a square of 2 · radius + 1 pixels a side."""

    name: Literal["box_blur"] = "box_blur"
    radius: int = number(2, 0, 500, "px", "pixels from the centre of the square to its edge")

    example: ClassVar = {"name": "box_blur", "radius": 2}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (7, 31)
    border: ClassVar = "replicate"
    passes: ClassVar = (*(each for _, each in _SUMS), _WITH_ALPHA)

    # cv2.blur itself is off by one level in some samples from a radius of about 499 on. Up to a
    # radius of 73 the rounding of its float32 reciprocal cannot matter: no mean is nearer to a half
    # than 1 / (2·k²), which is larger than its error.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return (2·S + k²) // (2·k²) for every sample, with k = 2·radius + 1 and S the sum of the
        square.

        This is `cv2.blur` with halves rounded up, in exact integers. uint8 (H, W, C) to uint8 (H,
        W, C).
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
    def rows_around(self) -> int:
        """Return the radius of the square."""
        return self.radius

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass for this radius without alpha, then the pass with alpha.

        Each pass skips images with a different number of channels, so a batch may mix both.
        """
        return (next(each for most, each in _SUMS if self.radius <= most), _WITH_ALPHA)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Box`, 16 bytes."""
        return device_box(self.radius)


def _sums(band: Band, box: tuple[int, int]) -> Sums:
    """Return the sums over boxes of (width, height) pixels, float64 of the shape of `band`."""
    border = cv2.BORDER_REPLICATE
    total = cv2.boxFilter(band, cv2.CV_64F, box, normalize=False, borderType=border)
    return np.asarray(total, np.float64).reshape(band.shape)
