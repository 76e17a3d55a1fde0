"""The bilateral filter: a mean of neighbours, weighted by nearness and by similarity.

Source: C. Tomasi, R. Manduchi, "Bilateral filtering for gray and color images", 1998. In detail:

1. The window is a disc: neighbours at distance sqrt(dx² + dy²) <= radius count.
2. The weight of a neighbour is space(dx² + dy²) · colour(d), two Gaussians.
3. d is the L1 distance of colours: the sum of absolute differences of the channels, 0…765.
   The paper measures colours in CIE-Lab; with L1 on RGB, `colour` is a table of 766 weights.
4. The result is sum(w · x) / sum(w), rounded, for each channel with the same weights.
5. Weights and sums are float32, so the order of summation shows in rare last bits.
6. The specification is `cv2.bilateralFilter` itself, border mode mirror.
7. The GPU makes the same tables in float64, rounded to float32, and sums in the order of OpenCV's
   vector code. OpenCV sums the last columns of a row in another order, which cannot be repeated for
   all widths; hence `device_tolerance`: a level in 0.01 % of samples.
8. Grey images at small diameters take another path inside OpenCV; `apply` avoids it (see there).
9. The filter is not separable and costs diameter² a pixel; tiles live in shared memory.
10. Alpha is copied.
"""

import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, repeated, split_alpha
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

MOST_REACH = 16
"""The radius of the largest diameter, in pixels."""


class Bilateral(Filter):
    """Smooth surfaces and keep edges: weight neighbours by distance and similarity."""

    name: Literal["bilateral"] = "bilateral"
    diameter: int = number(9, 1, 33, "px", "diameter of the neighbourhood")
    sigma_color: float = number(
        50, 1, 255, "level", "standard deviation of the weights by difference in colour"
    )
    sigma_space: float = number(50, 0.1, 100, "px", "standard deviation of the weights by distance")

    example: ClassVar = {"name": "bilateral", "diameter": 9}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "mirror"
    tolerance: ClassVar = "exact; on a GPU within 1 on at most 0.01 % of samples"
    device_tolerance: ClassVar = 1e-4
    passes: ClassVar = (Pass("bilateral"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.bilateralFilter` of uint8 (H, W, C); alpha is copied.

        Grey images at diameters up to 5 are filtered as three equal channels with three times
        sigma_color, because OpenCV's IPP path for them truncates instead of rounding.
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1 and self.diameter <= 5:
            return self._smoothed(repeated(colour[:, :, 0], 3), 3 * self.sigma_color)[
                :, :, :1
            ].copy()
        return join_alpha(self._smoothed(colour, self.sigma_color), alpha)

    @property
    def rows_around(self) -> int:
        """Return the radius of the window."""
        return self.diameter // 2 + 1

    def _smoothed(self, colour: Pixels, sigma_color: float) -> Pixels:
        smooth = cv2.bilateralFilter(
            np.ascontiguousarray(colour),
            self.diameter,
            sigma_color,
            self.sigma_space,
            borderType=cv2.BORDER_REFLECT_101,
        )
        return np.asarray(smooth, np.uint8).reshape(colour.shape)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Bilateral`: radius, reach of each row, and OpenCV's weights as float32."""
        radius = max(self.diameter // 2, 1)
        rows, columns = np.arange(MOST_REACH + 1), np.arange(-MOST_REACH, MOST_REACH + 1)
        reach = [math.isqrt(max(radius**2 - n**2, 0)) for n in range(MOST_REACH + 1)]
        space = np.exp(np.add.outer(rows**2, columns**2) * (-0.5 / self.sigma_space**2))
        colour = np.exp(np.arange(3 * 255 + 1) ** 2 * (-0.5 / self.sigma_color**2))
        weights = np.concatenate((space.ravel(), colour)).astype("<f4")
        return struct.pack(f"<{MOST_REACH + 2}i", radius, *reach) + bytes(weights.data)
