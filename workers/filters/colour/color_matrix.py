"""The color_matrix filter, and sepia, which has a matrix of its own."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from models.api.numbers import plain_float
from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, mixed, split_alpha
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

BITS = 16
"""Bits of the fraction of a weight."""

TONES = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))
"""Red, green and blue of sepia as weighted sums of red, green and blue of the image.

`amount` interpolates between the identity and these widely used weights.
"""

Entry = Annotated[float, Field(ge=-8, le=8, strict=True)]


class _Mixing(Filter):
    """Base class of filters that mix red, green and blue by a matrix."""

    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    result_shape: ClassVar = "colour"
    passes: ClassVar = (Pass("color_matrix"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return colours times a 3 × 4 matrix in 16-bit fixed point, rounded half up, uint8.

        The shape is (H, W, 3 or 4): a grey image becomes RGB. Integers give the same bytes on any
        device.
        """
        colour, alpha = split_alpha(pixels)
        return join_alpha(mixed(colour, self._fixed(), BITS), alpha)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the matrix as int32 (3, 4) in units of 2**-16; the last column includes half a
        level.
        """
        matrix = self._fixed().astype("<i4")
        matrix[:, 3] += 1 << (BITS - 1)
        return matrix.tobytes()

    def _fixed(self) -> NDArray[np.int64]:
        """Return the matrix in units of 2**-16, int64 (3, 4); offsets are in levels."""
        return np.floor(self._exact() * (1 << BITS) + 0.5).astype(np.int64)

    @abstractmethod
    def _exact(self) -> NDArray[np.float64]:
        """Return the matrix, float64 (3, 4)."""


def _entries(given: object) -> object:
    """Return a list of numbers from text that separates them by commas; return anything else
    unchanged.
    """
    if not isinstance(given, str):
        return given
    return [plain_float(each) for each in given.split(",", 12)]


class ColorMatrix(_Mixing):
    """Mix red, green and blue by a matrix; a grey image becomes RGB."""

    name: Literal["color_matrix"] = "color_matrix"
    matrix: Annotated[
        tuple[Entry, ...], BeforeValidator(_entries), Field(min_length=12, max_length=12)
    ] = Field(
        (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0),
        description="rows for new red, green, blue: weights of red, green, blue, and an offset, "
        "in which 1 is the whole range",
        json_schema_extra={"takes": "a list of 12 numbers from -8 to 8"},
    )

    example: ClassVar = {
        "name": "color_matrix",
        "matrix": [0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0],
    }
    tolerance: ClassVar = "exact in 16-bit fixed point, within 1 of floating point"

    def _exact(self) -> NDArray[np.float64]:
        return np.array(self.matrix).reshape(3, 4) * [1.0, 1.0, 1.0, 255.0]


class Sepia(_Mixing):
    """Give the image the brown tones of an old photograph; a grey image becomes RGB."""

    name: Literal["sepia"] = "sepia"
    amount: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 replaces them")

    example: ClassVar = {"name": "sepia"}

    def _exact(self) -> NDArray[np.float64]:
        weights = (1 - self.amount) * np.eye(3) + self.amount * np.array(TONES)
        return np.pad(weights, ((0, 0), (0, 1)))
