"""Filters that blur: Gaussian, box and motion."""

import struct
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.sums import (
    Band,
    Place,
    Planes,
    Sums,
    bands,
    correlated,
    correlated_bytes,
    device_box,
    filtered,
)
from workers.filters.base import Filter, number
from workers.filters.separable import (
    COLUMNS,
    FAR,
    NEAR,
    ROWS,
    SUM_BITS,
    blurred,
    blurred_levels,
    device_taps,
    half_up,
    reach,
    tile_taps,
    wide_reach,
)
from workers.kernels.items import Grid, Pass, Shape

_IN_TILES = {
    NEAR: Pass("gaussian_reach_8", channels=(1, 3)),
    FAR: Pass("gaussian_reach_24", channels=(1, 3)),
}
_WIDE = (
    Pass("gaussian_rows_mma", channels=(1, 3)),
    Pass("gaussian_columns_mma", channels=(1, 3)),
)
_WITH_ALPHA = (ROWS._replace(channels=(4,)), COLUMNS._replace(channels=(4,)))


class GaussianBlur(Filter):
    """Blur with a Gaussian in fixed point, which gives the same bytes on every device."""

    sigma: float = number(2, 0.1, 100, "px", "standard deviation")
    sigma_y: float | None = number(
        None, 0.1, 100, "px", "vertical standard deviation, if it differs"
    )

    example: ClassVar = {"sigma": 2}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (10, 29)
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: (int(4 * self._down + 0.5), int(4 * self.sigma + 0.5))
    passes: ClassVar = (ROWS, COLUMNS, *_IN_TILES.values(), *_WIDE)
    tolerance: ClassVar = "within 1 of scipy.ndimage.gaussian_filter in float64, on at most 0.2 %"

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the two fixed-point passes of `workers.filters.separable`, rounded half up.

        uint8 (H, W, C) to uint8 (H, W, C); with alpha, colours are filtered times alpha.
        """
        if pixels.shape[2] == 4:
            sums = partial(blurred, sigma_x=self.sigma, sigma_y=self._down)
            return filtered(pixels, sums, partial(half_up, bits=SUM_BITS))
        result = np.empty(pixels.shape, np.uint8)
        for place, levels in blurred_levels(pixels, self.sigma, self._down):
            result[place] = levels
        return result

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass for small windows, else a pass along rows and a pass along columns.

        Images with alpha always take the two passes of `device_taps`.
        """
        far = reach(self.sigma, self._down)
        if far is not None:
            return (_IN_TILES[far], *_WITH_ALPHA)
        return (*_WIDE, *_WITH_ALPHA) if wide_reach(self.sigma, self._down) else (ROWS, COLUMNS)

    def device_data(self, shape: Shape) -> bytes:
        """Return the weights, as the passes for this number of channels read them."""
        if shape[2] < 4 and wide_reach(self.sigma, self._down):
            return tile_taps(self.sigma, self._down)
        return device_taps(self.sigma, self._down, shape[2] == 4)

    @property
    def _down(self) -> float:
        return self.sigma_y or self.sigma


_BOX_WITH_ALPHA = Pass("box_blur_alpha", channels=(4,))
_BOXES = (
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

    radius: int = number(2, 0, 500, "px", "pixels from the centre of the square to its edge")

    example: ClassVar = {"radius": 2}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (7, 31)
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: self.radius
    passes: ClassVar = (*(each for _, each in _BOXES), _BOX_WITH_ALPHA)

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
            height, width, count = planes.shape
            source, rows = np.ascontiguousarray(planes), np.empty(planes.shape, np.int32)
            for band in bands(height, width * count):
                rows[band] = _sums(source[band], (side, 1))
            for band in bands(width, height * count):
                yield (slice(None), band), _sums(rows[:, band].astype(np.float64), (1, side))

        def rounded(total: Sums) -> Sums:
            return np.floor((2 * total + side * side) / (2 * side * side))

        return filtered(pixels, sums, rounded)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass for this radius without alpha, then the pass with alpha.

        Each pass skips images with a different number of channels, so a batch may mix both.
        """
        return (next(each for most, each in _BOXES if self.radius <= most), _BOX_WITH_ALPHA)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Box`, 16 bytes."""
        return device_box(self.radius)


def _sums(band: Band, box: tuple[int, int]) -> Sums:
    """Return the sums over boxes of (width, height) pixels, float64 of the shape of `band`."""
    border = cv2.BORDER_REPLICATE
    total = cv2.boxFilter(band, cv2.CV_64F, box, normalize=False, borderType=border)
    return np.asarray(total, np.float64).reshape(band.shape)


BITS = 15


class MotionBlur(Filter):
    """Blur along a line, as if the camera had moved."""

    length: int = number(15, 3, 255, "px", "length of the line")
    angle: float = number(
        0, -180, 180, "degree", "angle of the line, counterclockwise; 0 is horizontal, 90 vertical"
    )

    example: ClassVar = {"length": 21, "angle": 30}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (7, 24)
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: tuple(side // 2 for side in self.fixed().shape)
    passes: ClassVar = (Pass("motion_blur"),)

    # Weights have only 15 bits because sums over bytes are then exact in float32, and sums over
    # colour times alpha in 32 bits. Rounding the weights moves no sample by more than 1.01 levels,
    # and that only where the neighbours alternate between black and white exactly as the rounding
    # errors do.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return sums with integer weights in units of 2**-15, rounded half up, uint8 (H, W, C).

        This definition is our own.
        """
        weights = self.fixed()
        if pixels.shape[2] < 4:
            source = np.ascontiguousarray(pixels)
            return correlated_bytes(source, weights, "replicate", BITS, 1 << (BITS - 1))
        sums = partial(correlated, weights=weights, border="replicate")
        return filtered(pixels, sums, partial(half_up, bits=BITS))

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Motion`: the weights that are not 0, each with its offset in pixels."""
        weights = self.fixed()
        rows, columns = np.nonzero(weights)
        taps = np.zeros(len(rows), [("x", "<i2"), ("y", "<i2"), ("weight", "<i4")])
        taps["x"], taps["y"] = columns - weights.shape[1] // 2, rows - weights.shape[0] // 2
        taps["weight"] = weights[rows, columns]
        return struct.pack("<4i", len(taps), 0, 0, 0) + bytes(taps.data)

    def fixed(self) -> NDArray[np.int64]:
        """Return max(0, 1 - d) · clip((length + 1) / 2 - t, 0, 1) as int64 weights that sum to
        2**15.

        d is the distance of a pixel from the line, and t its distance from the middle along the
        line, in pixels. This is a line of pixels turned with bilinear interpolation, as kornia's
        `get_motion_kernel2d` makes it. Weights are rounded by largest remainder, in symmetric
        pairs. The shape is (rows, columns), both odd.
        """
        offsets = np.arange(-(self.length // 2), self.length // 2 + 1)
        cos, sin = np.cos(np.radians(self.angle)), np.sin(np.radians(self.angle))
        along = np.abs(offsets * cos - offsets[:, None] * sin)
        away = np.abs(offsets * sin + offsets[:, None] * cos)
        line = np.maximum(0, 1 - away) * np.clip((self.length + 1) / 2 - along, 0, 1)
        weights: NDArray[np.int64] = _rounded(line.ravel()).reshape(line.shape)
        rows, columns = (np.flatnonzero(weights.any(axis)) for axis in (1, 0))
        return weights[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _rounded(line: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round symmetric weights by largest remainder to int64 that sum to 2**15, in pairs.

    The middle weight takes the odd unit.
    """
    exact = line * ((1 << BITS) / line.sum())
    weights: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    middle = len(line) // 2
    pairs, odd = divmod((1 << BITS) - int(weights.sum()), 2)
    largest = np.argsort(weights[:middle] - exact[:middle], kind="stable")[:pairs]
    weights[largest] += 1
    weights[-1 - largest] += 1
    weights[middle] += odd
    return weights
