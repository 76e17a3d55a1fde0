"""The contrast filter."""

import struct
from typing import ClassVar, Literal

import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, blend, luma, through_table
from workers.filters.arithmetic.tiling import COUNTED, pieces
from workers.filters.base import Filter, number
from workers.filters.lookup_tables import ComposedTables
from workers.kernels.items import Pass, Shape


class Contrast(Filter):
    """Spread all colours around the image's mean luma."""

    name: Literal["contrast"] = "contrast"
    factor: float = number(1, 0, 8, "ratio", "0 gives plain grey, 1 the original")

    example: ClassVar = {"name": "contrast", "factor": 1.3}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    passes: ClassVar = (Pass("luma_sum"), Pass("contrast"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Contrast` of uint8 (H, W, C); alpha is copied.

        The mean luma is an exact 64-bit sum over all pixels, divided and rounded half up.
        """
        return through_table(pixels, self._table_for(pixels))

    def counted(self, pixels: Pixels) -> ComposedTables:
        """Return the table for the mean luma of this image."""
        return ComposedTables(levels=self._table_for(pixels).tobytes())

    def _table_for(self, pixels: Pixels) -> Pixels:
        """Return the new value of each level, uint8 (256, 1, 1)."""
        height, width = pixels.shape[:2]
        total = sum(int(luma(each).sum(dtype=np.uint64)) for each in pieces(pixels, COUNTED))
        return blend(int(total / (height * width) + 0.5), LEVELS, self.factor)

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for the sum of all lumas (uint64), and the factor as float32, the type of
        `blend`.
        """
        return struct.pack("<Qf4x", 0, self.factor)
