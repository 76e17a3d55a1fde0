"""The pixelate filter."""

import struct
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Pixelate(Filter):
    """Squares of one colour, the mean of what they cover: to make faces and plates unreadable."""

    name: Literal["pixelate"] = "pixelate"
    size: int = Field(
        16, ge=2, le=1000, description="side of a square", json_schema_extra={"unit": "px"}
    )

    example: ClassVar = {"name": "pixelate", "size": 12}
    alpha_rule: ClassVar = "premul"
    passes: ClassVar = (Pass("pixelate", 64, 64),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Means in integers, half-up; colours are weighed by their alpha. The last may be cut."""
        result = np.empty_like(pixels)
        for top in range(0, len(pixels), self.size):
            rows = slice(top, top + self.size)
            result[rows] = np.repeat(self._means(pixels[rows]), self.size, 0)[: pixels.shape[1]]
        return result

    def device_data(self, shape: Shape) -> bytes:
        """The size."""
        return struct.pack("<i", self.size)

    def _means(self, rows: Pixels) -> Pixels:
        """One colour for each square of a row of them: (squares, channels)."""
        starts = range(0, rows.shape[1], self.size)
        if rows.shape[2] < 4:
            n = len(rows) * np.diff([*starts, rows.shape[1]])[:, None]
            sums = np.add.reduceat(rows.sum(0, dtype=np.int64), starts)
            return np.asarray((2 * sums + n) // (2 * n), np.uint8)
        alpha = rows[..., 3:].astype(np.int64)
        n = len(rows) * np.diff([*starts, rows.shape[1]])[:, None]
        weight = np.add.reduceat(alpha.sum(0), starts)
        sums = np.add.reduceat((rows[..., :3] * alpha).sum(0), starts)
        colour = (2 * sums + weight) // np.maximum(2 * weight, 1)
        opacity = (2 * weight + n) // (2 * n)
        return np.concatenate((colour * (opacity > 0), opacity), 1).astype(np.uint8)
