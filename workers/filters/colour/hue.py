"""The hue filter."""

import struct
from collections.abc import Sequence
from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter
from workers.kernels.items import LINE, Pass, Shape

BITS = 16
"""Of the angle: a sixth of the circle is 2**16 steps."""

SIXTH = 1 << BITS

Plane = cv2.typing.MatLike
"""One channel, uint8."""


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
        """HSV with saturation and value kept, in integers, half-up.

        With V and m the largest and smallest colour, C = V - m and h from 0 to 6 the turned hue in
        sixths of the circle, green is V - C·f(2) and blue V - C·f(4), where f(n) is |h - n| - 1
        cut to 0…1, and red m + C·f(3).
        """
        colour, alpha = split_alpha(pixels)
        if colour.shape[2] == 1:
            return np.array(colour, order="C")
        sixths = (self._angle() + SIXTH // 2) // SIXTH
        rest = self._angle() - sixths * SIXTH
        result = np.empty(colour.shape, np.uint8)
        for rows in bands(len(colour), colour[0].size):
            result[rows] = _turned(colour[rows], sixths, rest)
        return join_alpha(result, alpha)

    def device_data(self, shape: Shape) -> bytes:
        """The angle."""
        return struct.pack("<i", self._angle())

    def _angle(self) -> int:
        return int(np.floor(self.degrees / 60 * (1 << BITS) + 0.5))


def _turned(colour: Pixels, sixths: int, rest: int) -> Pixels:
    """By so many sixths of the circle, and a rest of at most half of one, in bytes.

    Three sixths turn a colour c into V + m - c, two sixths make red green, green blue, blue red.
    """
    opposite = sixths % 2
    planes = _turned_a_little(cv2.split(colour), rest, opposite)
    thirds = (sixths - 3 * opposite) // 2
    return np.asarray(cv2.merge([planes[(n - thirds) % 3] for n in range(3)]), np.uint8)


def _turned_a_little(planes: Sequence[Plane], rest: int, opposite: int) -> list[Plane]:
    """The colours turned by `rest`; if `opposite`, V + m - c of each, half-up like themselves.

    Turned by d, in colours, towards the next colour, a colour c falls by what the next one exceeds
    V - d by, and rises by what it lacks to m + d: the hexagon's edges, whose ends are V and m. As d
    is at most C / 2, never both. Bytes that stop at 0 and 255 stop beyond m and V.
    """
    value = cv2.max(cv2.max(planes[0], planes[1]), planes[2])
    least = cv2.min(cv2.min(planes[0], planes[1]), planes[2])
    chroma = cv2.subtract(value, least)
    shares = np.arange(256) * abs(rest) + (SIXTH // 2)
    up, down = ((shares - less) >> BITS for less in (opposite, 1 - opposite))
    high = cv2.subtract(value, cv2.LUT(chroma, down.astype(np.uint8)))
    low = cv2.add(least, cv2.LUT(chroma, up.astype(np.uint8)))
    turned, ahead = [], 1 if rest >= 0 else 2
    for n, plane in enumerate(planes):
        following = planes[(n + ahead) % 3]
        new = cv2.min(cv2.add(plane, cv2.subtract(low, following)), value)
        new = cv2.max(cv2.subtract(new, cv2.subtract(following, high)), least)
        turned.append(cv2.add(cv2.subtract(value, new), least) if opposite else new)
    return turned
