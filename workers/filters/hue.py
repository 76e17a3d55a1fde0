"""The hue filter."""

import struct
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.image import Pixels
from workers.filters.bands import bands
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha
from workers.kernels.items import LINE, Pass, Shape

BITS = 16
"""Of the angle: a sixth of the circle is 2**16 steps."""


class Hue(Filter):
    """Turn all colours around the colour wheel; grey stays grey."""

    name: Literal["hue"] = "hue"
    degrees: float = Field(
        0,
        ge=-180,
        le=180,
        description="from red towards green",
        json_schema_extra={"unit": "degree"},
    )

    example: ClassVar = {"name": "hue", "degrees": 90}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = (Pass("hue", LINE, flat=True),)
    tolerance: ClassVar = "within 1 of torchvision's adjust_hue in floating point"

    def apply(self, pixels: Pixels) -> Pixels:
        """HSV with saturation and value kept, in integers.

        With V and m the largest and smallest colour, C = V - m and h the hue in sixths of the
        circle, channel n = 5, 3, 1 is V - C·clip(min(k, 4 - k), 0, 1) with k = (n + h) mod 6; all
        of it times C and 2**16, so that nothing is divided. Half-up.
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1:
            return np.array(colour, order="C")
        result = np.empty(colour.shape, np.uint8)
        for rows in bands(len(colour), colour[0].size):
            _turn(colour[rows], self._angle(), result[rows])
        return join_alpha(result, alpha)

    def device_data(self, shape: Shape) -> bytes:
        """The angle."""
        return struct.pack("<i", self._angle())

    def _angle(self) -> int:
        return int(np.floor(self.degrees / 60 * (1 << BITS) + 0.5))


def _turn(colour: Pixels, turn: int, result: Pixels) -> None:
    planes = [np.ascontiguousarray(colour[:, :, n]).astype(np.int32) for n in range(3)]
    value = np.maximum(np.maximum(planes[0], planes[1]), planes[2])
    chroma = value - np.minimum(np.minimum(planes[0], planes[1]), planes[2])
    hue = _hue(planes, value, chroma)
    hue <<= BITS
    hue += chroma * turn
    chroma <<= BITS
    value <<= BITS
    value += 1 << (BITS - 1)
    for channel, n in enumerate((5, 3, 1)):
        k = hue + n * chroma
        k %= np.maximum(6 * chroma, 1)
        np.minimum(k, 4 * chroma - k, out=k)
        np.clip(k, 0, chroma, out=k)
        result[:, :, channel] = (value - k) >> BITS


def _hue(
    planes: list[NDArray[np.int32]], value: NDArray[np.int32], chroma: NDArray[np.int32]
) -> NDArray[np.int32]:
    """The hue in sixths of the circle, times the chroma: from -chroma to 5·chroma."""
    red, green, blue = planes
    hue = np.where(green == value, 2 * chroma + blue - red, 4 * chroma + red - green)
    return np.where(red == value, green - blue, hue)
