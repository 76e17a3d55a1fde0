"""The dog filter."""

import struct
from typing import ClassVar, Literal

import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey, luma
from workers.filters.base import Filter, number
from workers.filters.separable.gaussian import blurred_levels, device_taps
from workers.kernels.items import Pass, Shape

SCALE_BITS = 16
"""Bits of the fraction of `scale`."""


class Dog(Filter):
    """Show edges and spots of a size between two blurs, as grey: the difference of Gaussians."""

    name: Literal["dog"] = "dog"
    sigma1: float = number(1, 0.1, 100, "px", "standard deviation of the first blur")
    sigma2: float = number(1.6, 0.1, 100, "px", "standard deviation of the second blur")
    scale: float = number(4, 0, 100, "ratio", "factor on the difference")

    example: ClassVar = {"name": "dog", "sigma1": 1, "sigma2": 2, "scale": 8}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"
    passes: ClassVar = (
        Pass("grey_plane"),
        Pass("dog_rows"),
        Pass("dog_rows"),
        Pass("dog_columns"),
    )
    tolerance: ClassVar = "within 1, for each unit of scale, of float64"

    # The blurs have the 24 fractional bits of their sums and scale has 16, so a product has 40 of
    # them and 8 bits before the point if it is below 256: float64 holds these 48 bits exactly.
    # Larger products may be rounded, but never to a value below 256, and they become 255.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, scale · |G1 - G2|) of the luma, half up, with the alpha of the image."""
        plane, scale = luma(pixels)[..., None], self._fixed_scale() / (1 << SCALE_BITS)
        grey = np.empty(plane.shape, np.uint8)
        both = (blurred_levels(plane, sigma, sigma) for sigma in (self.sigma1, self.sigma2))
        for (place, first), (_, second) in zip(*both, strict=True):
            first -= second
            np.abs(first, out=first)
            first *= scale
            first += 0.5
            grey[place] = np.minimum(first, 255, out=first)
        return as_grey(grey[..., 0], pixels)

    @property
    def rows_around(self) -> int:
        """Return the radius of the larger window."""
        return int(4 * max(self.sigma1, self.sigma2) + 0.5)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Dog`: the scale in Q16, and the weights of both blurs."""
        sigmas = (self.sigma1, self.sigma2)
        first, second = (device_taps(sigma, sigma, premultiplied=False) for sigma in sigmas)
        return struct.pack("<Ii8x", self._fixed_scale(), len(first)) + first + second

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of the luma and of the row sums of both blurs, each rounded up to
        256.
        """
        height, width, _ = shape
        parts = (height * width + 4, *[2 * (width + 3) * height] * 2)
        return sum(-(-part // 256) * 256 for part in parts)

    def _fixed_scale(self) -> int:
        return int(self.scale * (1 << SCALE_BITS) + 0.5)
