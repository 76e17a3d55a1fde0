"""Filters that turn an image black and white."""

import functools
import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import COUNTS, as_grey, counted, luma, repeated
from workers.filters.arithmetic.sums import BAND_SAMPLES, device_box
from workers.filters.base import CountingFilter, Filter, Odd, number, odd
from workers.filters.separable import (
    FAR,
    NEAR,
    device_weights,
    quantised,
    reach_of,
    separable_weights,
)
from workers.kernels.items import Pass, Shape


class Threshold(Filter):
    """Reduce the image to two tones: lumas above a value become light, the others black."""

    value: int = number(128, 0, 255, "level", "lumas above this become light")
    max: int = number(255, 0, 255, "level", "level of the light tone")

    example: ClassVar = {"value": 100}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("apply_threshold"),)
    packed: ClassVar = ("<2I", "value", "max")

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.threshold` with THRESH_BINARY on the luma: `max` where it is strictly above
        `value`.

        uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        grey = np.ascontiguousarray(luma(pixels))
        _, parted = cv2.threshold(grey, self.value, self.max, cv2.THRESH_BINARY)
        return as_grey(np.asarray(parted, np.uint8), pixels)


class Otsu(CountingFilter):
    """Make the image black and white at the luma that separates it best into two groups."""

    passes: ClassVar = (COUNTS[1], Pass("otsu_threshold"), Pass("apply_threshold"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.threshold` with THRESH_OTSU on the luma, 0 or 255; alpha is copied.

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


_WEIGHT_BITS = 16
"""Bits of the fraction of a Gaussian weight."""

_ANY = (Pass("grey_plane"), Pass("adaptive_rows"), Pass("adaptive_columns"))
_IN_TILES = {NEAR: Pass("adaptive_reach_8"), FAR: Pass("adaptive_reach_24")}


class AdaptiveThreshold(Filter):
    """Make each pixel black or white by its own neighbourhood, for text in uneven light."""

    block: Odd = odd(11, 3, 255, "side of the neighbourhood, odd")
    c: float = number(
        2, -255, 255, "level", "levels by which a black pixel is darker than its neighbourhood"
    )
    method: Literal["mean", "gaussian"] = Field("mean", description="weights of the neighbourhood")

    example: ClassVar = {"block": 31, "c": 5}
    alpha_rule: ClassVar = "drop"
    cpu_bytes_per_pixel: ClassVar = (7, 7)
    border: ClassVar = "replicate"
    result_shape: ClassVar = "no alpha"
    row_reach: ClassVar = lambda self: self.block // 2 if self.method == "mean" else None
    passes: ClassVar = (*_ANY, *_IN_TILES.values())
    tolerance: ClassVar = "exact; gaussian: another tone on at most 0.01 % of pixels"

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.adaptiveThreshold` with THRESH_BINARY on the luma: uint8 (H, W, 1 or 3)."""
        grey = np.ascontiguousarray(luma(pixels))
        if self.method == "mean":
            mean, binary = cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY
            parted = cv2.adaptiveThreshold(grey, 255, mean, binary, self.block, self.c)
        else:
            parted = self._by_gaussian(grey)
        return repeated(np.asarray(parted, np.uint8), min(pixels.shape[2], 3))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass for plain means of small neighbourhoods, else three passes."""
        return _ANY if self._reach is None else (_IN_TILES[self._reach],)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Separable` for the single pass, else `struct Adaptive`.

        The weights of a plain mean are 1.
        """
        if self._reach is not None:
            return _in_tiles(self.block // 2, math.ceil(self.c))
        gaussian = self.method == "gaussian"
        weights = self._weights() if gaussian else np.ones(self.block, np.int64)
        header = struct.pack("<2i8x", gaussian, math.ceil(self.c))
        return device_box(self.block // 2) + header + device_weights(weights, weights)

    def _by_gaussian(self, grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Threshold by OpenCV's Gaussian weights in 16-bit fixed point, exact in any order of
        summation.

        OpenCV's own float sums depend on the machine; they are as close to a half as ours. The mean
        is rounded half to even, as in OpenCV. uint8 (H, W) to uint8 (H, W).
        """
        weights, reach, height = self._weights().astype(np.float64), self.block // 2, len(grey)
        step = max(4 * self.block, BAND_SAMPLES // grey.shape[1])
        result = np.empty(grey.shape, np.uint8)
        for top in range(0, height, step):
            end = min(top + step, height)
            above, below = max(0, top - reach), min(height, end + reach)
            sums = cv2.sepFilter2D(
                grey[above:below], cv2.CV_64F, weights, weights, borderType=cv2.BORDER_REPLICATE
            )
            mean = np.rint(np.asarray(sums)[top - above : end - above] * 2.0 ** (-2 * _WEIGHT_BITS))
            result[top:end] = np.where(grey[top:end] - mean > -math.ceil(self.c), 255, 0)
        return result

    def _weights(self) -> NDArray[np.int64]:
        """Return OpenCV's Gaussian weights for this side, int64 (block,), in units of 2**-16."""
        kernel = cv2.getGaussianKernel(self.block, -1, cv2.CV_64F)
        return quantised(np.asarray(kernel, np.float64)[:, 0], _WEIGHT_BITS)

    @property
    def _reach(self) -> int | None:
        return reach_of(self.block // 2) if self.method == "mean" else None


@functools.lru_cache
def _in_tiles(radius: int, ceiling: int) -> bytes:
    """Return `struct Separable` for `Judged` of adaptive_threshold.cu; columns weigh 2."""
    side, reach = 2 * radius + 1, reach_of(radius)
    assert reach is not None
    ones = np.ones(side, np.int64)
    header = struct.pack("<2Ii4x", side * side - 1, -(-(1 << 31) // (side * side)), ceiling)
    return header + separable_weights(ones, 2 * ones, reach, (1, 1))
