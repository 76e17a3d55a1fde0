"""The canny filter."""

import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma, repeated
from workers.filters.base import Filter, number
from workers.filters.blur.gaussian_blur import GaussianBlur
from workers.filters.separable.gaussian import device_taps, reach, tile_taps
from workers.filters.separable.mma_fragments import FAR, NEAR
from workers.kernels.items import Pass, Shape

_SMALLEST_SIGMA = 0.1

_BLURS = (
    Pass("grey_plane"),
    Pass("canny_blur_rows"),
    Pass("canny_blur_columns"),
)
_IN_TILES = {NEAR: Pass("canny_blur_reach_8"), FAR: Pass("canny_blur_reach_24")}
_EDGES = (
    Pass("canny_edges"),
    Pass("canny_join_tiles"),
    Pass("canny_paint"),
)


class Canny(Filter):
    """Draw thin white lines along edges."""

    name: Literal["canny"] = "canny"
    low: float = number(100, 0, 2040, "level", "gradient from which an edge continues")
    high: float = number(200, 0, 2040, "level", "gradient from which an edge starts")
    sigma: float = number(
        0, 0, 100, "px", "standard deviation of the gaussian_blur before; no blur below 0.1"
    )

    example: ClassVar = {"name": "canny", "low": 60, "high": 160, "sigma": 1.4}
    alpha_rule: ClassVar = "drop"
    cpu_bytes_per_pixel: ClassVar = (9, 9)
    border: ClassVar = "replicate"
    result_shape: ClassVar = "no alpha"
    passes: ClassVar = (*_BLURS, *_IN_TILES.values(), *_EDGES)

    # The steps, which the GPU repeats exactly in integers:
    # 1. Blur the luma, if sigma is at least 0.1, by the fixed-point Gaussian.
    # 2. Take Sobel gradients x and y; the strength is |x| + |y| (L1).
    # 3. Keep a pixel only if its strength is a maximum along the gradient's direction, which is
    #    rounded to one of four by comparing |y| with |x| · tan 22.5° in 15-bit fixed point, as
    #    OpenCV does.
    # 4. A kept pixel above `high` starts an edge; one above `low` continues it.
    # 5. An edge is a component, connected over 8 neighbours, of pixels above `low` that contains
    #    one above `high`. OpenCV follows edges with a stack; the GPU joins components by union-find
    #    (headers/union_find.cuh). Both find the same set, because it does not depend on the order.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.Canny` of the luma, aperture 3, L1 gradient: uint8 (H, W, 1 or 3), 0 or 255.

        Source: J. Canny, "A computational approach to edge detection", 1986.
        """
        grey = luma(pixels)[..., None]
        if self._blurs:
            grey = GaussianBlur(sigma=self.sigma, sigma_y=None).apply(grey)
        edges = cv2.Canny(np.ascontiguousarray(grey[..., 0]), self.low, self.high)
        return repeated(np.asarray(edges, np.uint8), min(pixels.shape[2], 3))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a pass of blur for small windows, three for large windows, or none but the luma;
        then edges.
        """
        if not self._blurs:
            return (_BLURS[0], *_EDGES)
        far = reach(self.sigma, self.sigma)
        return (*_BLURS, *_EDGES) if far is None else (_IN_TILES[far], *_EDGES)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Canny`: the thresholds as integers, then the weights of the blur.

        OpenCV floors thresholds, and swaps them if `low` is larger.
        """
        low, high = sorted((math.floor(self.low), math.floor(self.high)))
        header = struct.pack("<3i20x", low, high, self._blurs)
        if not self._blurs:
            return header
        if reach(self.sigma, self.sigma):
            return header + tile_taps(self.sigma, self.sigma)
        return header + device_taps(self.sigma, self.sigma, premultiplied=False)

    @property
    def _blurs(self) -> bool:
        return self.sigma >= _SMALLEST_SIGMA
