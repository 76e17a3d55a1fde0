"""The laplacian filter."""

import functools
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey, luma
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter, Odd, number, odd
from workers.filters.edges.gradient import (
    EDGE_PASSES,
    WIDE_EDGE_PASSES,
    Wide,
    edge_data,
    toned,
    tones,
    wide_edge_data,
)
from workers.kernels.items import Pass, Shape


class Laplacian(Filter):
    """Show edges and spots: the difference of the luma from its surroundings, as grey."""

    name: Literal["laplacian"] = "laplacian"
    ksize: Odd = odd(3, 1, 7, "side of the operator, odd; 1 stands for four neighbours")
    scale: float = number(1, 0, 100, "ratio", "factor on the difference, which grows with ksize")

    example: ClassVar = {"name": "laplacian", "ksize": 3}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · |l| + 0.5)), with l = `cv2.Laplacian` of the luma in
        integers.

        uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        source, border = np.ascontiguousarray(luma(pixels)), cv2.BORDER_REPLICATE
        narrow = _longest(self.ksize) < 1 << 15
        depth = cv2.CV_16S if narrow else cv2.CV_32F
        found = cv2.Laplacian(source, depth, ksize=self.ksize, borderType=border)
        differences: Wide = np.asarray(found, np.int16) if narrow else np.asarray(found, np.int32)
        grey, table = np.empty_like(source), tones(_longest(self.ksize), self.scale)
        for rows in bands(*source.shape):
            grey[rows] = toned(differences[rows], table)
        return as_grey(grey, pixels)

    @property
    def rows_around(self) -> int:
        """Return the radius of the kernel."""
        return self.ksize // 2 + 1

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass of 3 × 3 weights for the sides 1 and 3, else the pass of larger sides."""
        return EDGE_PASSES if self.ksize <= 3 else WIDE_EDGE_PASSES

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, named by its corner weight if it is 3 × 3, and the tones."""
        weights = _operator(self.ksize)
        if self.ksize > 3:
            return wide_edge_data(self.scale, weights)
        return edge_data(self.name, int(weights[0, 0]), tones(_longest(self.ksize), self.scale))


@functools.cache
def _operator(ksize: int) -> NDArray[np.int64]:
    """Return the weights of the operator, int64 (side, side), side at least 3.

    They are read off the response of `cv2.Laplacian` to a single pixel; the operator is symmetric,
    so correlation and convolution agree.
    """
    reach = max(ksize // 2, 1)
    spot = np.zeros((2 * ksize + 3, 2 * ksize + 3))
    spot[ksize + 1, ksize + 1] = 1
    found = np.asarray(cv2.Laplacian(spot, cv2.CV_64F, ksize=ksize))
    around = slice(ksize + 1 - reach, ksize + 2 + reach)
    return np.rint(found[around, around]).astype(np.int64)


def _longest(ksize: int) -> int:
    """Return the largest absolute difference that the operator can give on bytes."""
    weights = _operator(ksize)
    return 255 * int(weights[weights > 0].sum())
