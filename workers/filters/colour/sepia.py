"""The sepia filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, mixed, split_alpha
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape

TONES = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))
"""Red, green and blue of the result as weighted sums of red, green and blue of the image.

`amount` interpolates between the identity and these widely used weights.
"""

BITS = 16
"""Bits of the fraction of a weight."""


class Sepia(Filter):
    """Give the image the brown tones of an old photograph; a grey image becomes RGB."""

    name: Literal["sepia"] = "sepia"
    amount: float = Field(
        1,
        ge=0,
        le=1,
        description="0 keeps the colours, 1 replaces them",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "sepia"}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    result_shape: ClassVar = "colour"
    passes: ClassVar = (Pass("color_matrix"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return colours times a 3 × 3 matrix in 16-bit fixed point, half up, uint8 (H, W, 3 or 4).

        Integers give the same bytes on any device.
        """
        colour, alpha = split_alpha(pixels)
        matrix = np.pad(self._weights(), ((0, 0), (0, 1)))
        return join_alpha(mixed(colour, matrix, BITS), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the matrix as int32 (3, 4) in units of 2**-16; the last column is half a level."""
        half = np.full((3, 1), 1 << (BITS - 1))
        return np.hstack((self._weights(), half)).astype("<i4").tobytes()

    def _weights(self) -> NDArray[np.int64]:
        matrix = (1 - self.amount) * np.eye(3) + self.amount * np.array(TONES)
        return np.floor(matrix * (1 << BITS) + 0.5).astype(np.int64)
