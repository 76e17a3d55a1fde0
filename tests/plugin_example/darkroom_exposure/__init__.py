"""A filter of Darkroom in a package of its own: a class, and its kernel beside it."""

import math
from typing import ClassVar

import numpy as np

from darkroom.filters import ColourFilter, Pass, Pixels, number, rounded_table


class Exposure(ColourFilter):
    """Multiply all colours by a power of two, as a longer or shorter exposure does."""

    stops: float = number(0, -8, 8, "stop", "exponent of two")

    example: ClassVar = {"stops": 0.5}
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("exposure"),)
    packed: ClassVar = ("<d", "factor")

    @property
    def factor(self) -> float:
        """Return what the kernel multiplies by."""
        return math.exp2(self.stops)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return min(255, floor(x · factor + 0.5)), uint8 (H, W, 1 or 3)."""
        return rounded_table(np.arange(256.0) * self.factor)[colour]
