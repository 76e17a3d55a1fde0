"""The hue filter."""

import struct
from collections.abc import Sequence
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

BITS = 16
"""Bits of an angle: a sixth of the circle is 2**16 steps."""

SIXTH = 1 << BITS
"""A sixth of the circle, in steps."""

Plane = cv2.typing.MatLike
"""One channel, uint8 (H, W)."""


class Hue(Filter):
    """Turn all colours around the colour wheel; grey stays grey."""

    name: Literal["hue"] = "hue"
    degrees: float = number(0, -180, 180, "degree", "angle, from red towards green")

    example: ClassVar = {"name": "hue", "degrees": 90}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("hue"),)
    tolerance: ClassVar = "within 1 of torchvision's adjust_hue in floating point"

    def apply(self, pixels: Pixels) -> Pixels:
        """Turn hues and keep saturation and value of HSV, in integers, half up: uint8 (H, W, C).

        With V and m the largest and smallest colour, C = V - m, and h the turned hue from 0 to 6 in
        sixths of the circle: green is V - C·f(2) and blue V - C·f(4), where f(n) is |h - n| - 1
        clipped to 0…1, and red is m + C·f(3). HSV is that of A. R. Smith, "Color gamut transform
        pairs", 1978.
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

    def device_data(self, _shape: Shape) -> bytes:
        """Return the angle as int32, in steps of 1 / 65,536 of a sixth of the circle."""
        return struct.pack("<i", self._angle())

    def _angle(self) -> int:
        return int(np.floor(self.degrees / 60 * (1 << BITS) + 0.5))


def _turned(colour: Pixels, sixths: int, rest: int) -> Pixels:
    """Turn colours by a number of sixths of the circle, and by a rest of at most half a sixth.

    Three sixths turn a colour c into V + m - c; two sixths rename red to green, green to blue and
    blue to red. So only the rest needs arithmetic, and bytes are enough for it.
    """
    opposite = sixths % 2
    planes = _turned_a_little(cv2.split(colour), rest, opposite)
    thirds = (sixths - 3 * opposite) // 2
    return np.asarray(cv2.merge([planes[(n - thirds) % 3] for n in range(3)]), np.uint8)


# Let d be the angle times the chroma, in levels. A colour c falls by the amount by which the next
# colour exceeds V - d, and rises by the amount by which the next colour lacks m + d. These are the
# edges of the hexagon of hues, whose corners are V and m. As d is at most C / 2, a colour never
# both falls and rises. The saturating operations of OpenCV stop at 0 and 255, which lie beyond m
# and V, so the final minimum and maximum repair them.
def _turned_a_little(planes: Sequence[Plane], rest: int, opposite: int) -> list[Plane]:
    """Return the three planes turned by `rest`; if `opposite`, V + m - c of each, rounded
    half up.
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
