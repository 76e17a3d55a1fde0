"""The gamma filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import TABLE_PASSES, rounded_table, through_table
from workers.filters.base import Filter


class Gamma(Filter):
    """Raise all tones to a power: above 1 the middle tones get darker, below 1 lighter."""

    name: Literal["gamma"] = "gamma"
    gamma: float = Field(
        1, ge=0.05, le=20, description="exponent", json_schema_extra={"unit": "ratio"}
    )
    gain: float = Field(
        1, ge=0, le=8, description="factor on the result", json_schema_extra={"unit": "ratio"}
    )

    example: ClassVar = {"name": "gamma", "gamma": 0.7}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return floor(255 · gain · (x / 255)^gamma + 0.5), clipped, in float64: uint8 (H, W, C).

        This is `skimage.exposure.adjust_gamma`, rounded; alpha is copied.
        """
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256,)."""
        tones = np.arange(256) / 255
        return rounded_table(255 * self.gain * tones**self.gamma)
