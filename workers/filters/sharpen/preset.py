"""The preset filter."""

import functools
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImageFilter
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import by_pillow, join_alpha, split_alpha
from workers.filters.base import Filter
from workers.filters.sharpen.small_correlations import (
    SMALL_FLOAT_PASSES,
    SMALL_INT_PASSES,
    small_float_data,
    small_int_data,
)
from workers.kernels.items import Pass, Shape

_KERNELS: dict[str, type[ImageFilter.BuiltinFilter]] = {
    "blur": ImageFilter.BLUR,
    "contour": ImageFilter.CONTOUR,
    "detail": ImageFilter.DETAIL,
    "edge_enhance": ImageFilter.EDGE_ENHANCE,
    "edge_enhance_more": ImageFilter.EDGE_ENHANCE_MORE,
    "emboss": ImageFilter.EMBOSS,
    "find_edges": ImageFilter.FIND_EDGES,
    "sharpen": ImageFilter.SHARPEN,
    "smooth": ImageFilter.SMOOTH,
    "smooth_more": ImageFilter.SMOOTH_MORE,
}
_MARGIN = 2
"""Pixels around a result that Pillow leaves unfiltered, at most."""

_PAST_HALF = 2.0**-6
"""An offset smaller than the distance from a half to the next possible sum."""

_TIED = ("detail", "smooth_more")
"""Kernels whose divisors (6 and 100) make the order of summation decide ties.

With the divisors 1, 2 and 16 all float32 sums are exact; with 13 none comes near a half.
"""


class Preset(Filter):
    """Apply one of Pillow's predefined small kernels: emboss, contour, detail and others."""

    name: Literal["preset"] = "preset"
    kernel: Literal[
        "blur",
        "contour",
        "detail",
        "edge_enhance",
        "edge_enhance_more",
        "emboss",
        "find_edges",
        "sharpen",
        "smooth",
        "smooth_more",
    ] = Field("emboss", description="name of the kernel in Pillow")

    example: ClassVar = {"name": "preset", "kernel": "emboss"}
    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 2
    border: ClassVar = "replicate"
    passes: ClassVar = (*SMALL_INT_PASSES, *SMALL_FLOAT_PASSES[3], *SMALL_FLOAT_PASSES[5])

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.filter` (libImaging/Filter.c), but with filtered margins: uint8
        (H, W, C).

        Sums are float32 in Pillow's order: for each row, the lowest first, w0·x0 + w1·x1 + … from
        left to right; then the sums of rows are added in turn to offset + 0.5. The result is
        truncated. Pillow leaves a margin of 1 or 2 pixels unfiltered; here the border mode is
        replicate.
        """
        colour, alpha = split_alpha(pixels)
        source = np.ascontiguousarray(colour)
        found = self._by_pillow(source) if self.kernel in _TIED else self._by_opencv(source)
        return join_alpha(found.reshape(colour.shape), alpha)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the passes of 3 × 3 or of 5 × 5 weights."""
        return (
            SMALL_INT_PASSES
            if _in_pairs(self.kernel) is not None
            else SMALL_FLOAT_PASSES[len(self._weights())]
        )

    def device_data(self, _shape: Shape) -> bytes:
        """Return the weights, the offset, and whether the order of summation matters."""
        if (whole := _in_pairs(self.kernel)) is not None:
            return whole
        offset: float = _KERNELS[self.kernel].filterargs[2] + 0.5
        return small_float_data(self._weights(), offset, "replicate", self.kernel in _TIED)

    def _weights(self) -> NDArray[np.float32]:
        """Return the weights from top to bottom, divided, float32 (side, side).

        Pillow stores the rows of its kernels from bottom to top.
        """
        size, divisor, _, weights = _KERNELS[self.kernel].filterargs
        upwards = np.array(weights, np.float32).reshape(size) / np.float32(divisor)
        return np.asarray(upwards[::-1], np.float32)

    def _by_opencv(self, colour: Pixels) -> Pixels:
        """Return the sums by OpenCV; `delta` keeps halves from being rounded to even."""
        delta = _KERNELS[self.kernel].filterargs[2] + _PAST_HALF
        border = cv2.BORDER_REPLICATE
        found = cv2.filter2D(colour, -1, self._weights(), delta=delta, borderType=border)
        return np.asarray(found, np.uint8)

    def _by_pillow(self, colour: Pixels) -> Pixels:
        border = cv2.BORDER_REPLICATE
        margin = _MARGIN
        wide = cv2.copyMakeBorder(colour, margin, margin, margin, margin, border)
        padded = np.asarray(wide, np.uint8).reshape(*wide.shape[:2], colour.shape[2])
        found = by_pillow(padded, lambda image: image.filter(_KERNELS[self.kernel]))
        return found[margin:-margin, margin:-margin]


@functools.cache
def _in_pairs(kernel: str) -> bytes | None:
    """Return the data of the 3 × 3 integer pass, or None; ties become half up in integers."""
    size, divisor, offset, weights = _KERNELS[kernel].filterargs
    if kernel in _TIED:
        return None
    upwards = np.array(weights, np.int64).reshape(size)
    return small_int_data(upwards[::-1], offset * divisor + divisor // 2, divisor, "replicate")
