"""The hue filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.image import Pixels
from workers.filters.bands import STRIP_SAMPLES, bands
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha
from workers.kernels.items import LINE, Pass, Shape

BITS = 16
"""Of the angle: a sixth of the circle is 2**16 steps."""

SIXTH = 1 << BITS

Plane = NDArray[np.int32]
Short = NDArray[np.int16]


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

        With V and m the largest and smallest colour, C = V - m and h from 0 to 6 the turned hue in
        sixths of the circle, green is V - C·f(2) and blue V - C·f(4), where f(n) is |h - n| - 1
        cut to 0…1, and red m + C·f(3); all of it times C and 2**16, so that nothing is divided.
        Half-up.
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1:
            return np.array(colour, order="C")
        result = np.empty(colour.shape, np.uint8)
        for rows in bands(len(colour), colour[0].size, STRIP_SAMPLES):
            result[rows] = _turned(colour[rows], self._angle())
        return join_alpha(result, alpha)

    def device_data(self, shape: Shape) -> bytes:
        """The angle."""
        return struct.pack("<i", self._angle())

    def _angle(self) -> int:
        return int(np.floor(self.degrees / 60 * (1 << BITS) + 0.5))


def _turned(colour: Pixels, turn: int) -> Pixels:
    planes = cv2.split(colour)
    value = np.maximum(np.maximum(planes[0], planes[1]), planes[2])
    least = np.minimum(np.minimum(planes[0], planes[1]), planes[2])
    chroma = (value - least).astype(np.int32)
    hue = _hue([plane.astype(np.int16) for plane in (*planes, value, least)]).astype(np.int32)
    hue <<= BITS
    hue += chroma * ((turn - SIXTH) % (6 * SIXTH) + SIXTH)
    chroma <<= BITS
    hue = _modulo_once(hue, 6 * chroma)
    hue -= 2 * chroma
    green = value - _share(hue, chroma, SIXTH // 2 - 1)
    hue -= chroma
    red = least + _share(hue, chroma, SIXTH // 2)
    hue -= chroma
    blue = value - _share(hue, chroma, SIXTH // 2 - 1)
    return np.asarray(cv2.merge([red, green, blue]), np.uint8)


def _hue(planes: list[Short]) -> Short:
    """The hue in sixths of the circle, times the chroma: from -chroma to 5·chroma."""
    red, green, blue, value, least = planes
    chroma = value - least
    hue = _chosen(green == value, 2 * chroma + blue - red, 4 * chroma + red - green)
    return _chosen(red == value, green - blue, hue)


def _chosen(condition: NDArray[np.bool_], one: Short, other: Short) -> Short:
    """np.where, a third as long: bits of one or the other."""
    mask = np.negative(condition.view(np.int8), dtype=np.int16)
    one ^= other
    one &= mask
    one ^= other
    return one


def _modulo_once(numbers: Plane, divisor: Plane) -> Plane:
    """0 <= numbers < 2·divisor modulo it: what would be negative is large without a sign."""
    less = np.subtract(numbers, divisor)
    return np.minimum(numbers.view(np.uint32), less.view(np.uint32)).view(np.int32)


def _share(distance: Plane, chroma: Plane, more: int) -> NDArray[np.uint8]:
    """|distance| - chroma, cut to 0…chroma, and some more, in levels.

    Added, a half more rounds half-up; taken away, what is just below a half does.
    """
    share = np.abs(distance)
    np.maximum(share, chroma, out=share)
    share -= chroma
    np.minimum(share, chroma, out=share)
    share += more
    share >>= BITS
    return share.astype(np.uint8)
