"""The contrast filter."""

import struct
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, blend, through_table
from workers.filters.arithmetic.luma import luma
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Contrast(Filter):
    """Spread all colours around the image's mean luma."""

    name: Literal["contrast"] = "contrast"
    factor: float = Field(
        1,
        ge=0,
        le=8,
        description="0 gives plain grey, 1 the original",
        json_schema_extra={"unit": "ratio"},
    )

    example: ClassVar = {"name": "contrast", "factor": 1.3}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = (Pass("luma_sum"), Pass("contrast"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Contrast` of uint8 (H, W, C); alpha is copied.

        The mean luma is an exact 64-bit sum over all pixels, divided and rounded half up.
        """
        grey = luma(pixels)
        mean = int(int(grey.sum(dtype=np.uint64)) / grey.size + 0.5)
        return through_table(pixels, blend(mean, LEVELS, self.factor))

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for the sum of all lumas (uint64), and the factor as float32, the type of
        `blend`.
        """
        return struct.pack("<Qf4x", 0, self.factor)
