"""Filters that mix the colours of each pixel."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydantic import BeforeValidator, Field

from models.api.numbers import plain_float
from models.domain.image import Pixels
from workers.filters.arithmetic.colour import (
    LEVELS,
    blend,
    lumas,
    mixed,
    repeated,
)
from workers.filters.arithmetic.sums import bands
from workers.filters.base import ColourFilter, HexColour, colour, number, rgba
from workers.kernels.items import Pass, Shape

BITS = 16
"""Bits of the fraction of a weight."""

TONES = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))
"""Red, green and blue of sepia as weighted sums of red, green and blue of the image.

`amount` interpolates between the identity and these widely used weights.
"""

Entry = Annotated[float, Field(ge=-8, le=8, strict=True)]


class _Point(ColourFilter):
    """Base class of filters that mix the colours of each pixel by itself."""

    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0


class _Mixing(_Point):
    """Base class of filters that mix red, green and blue by a matrix."""

    result_shape: ClassVar = "colour"
    passes: ClassVar = (Pass("color_matrix"),)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return colours times a 3 × 4 matrix in 16-bit fixed point, rounded half up, uint8.

        The shape is (H, W, 3): a grey image becomes RGB. Integers give the same bytes on any
        device.
        """
        return mixed(colour, self._fixed(), BITS)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the matrix as int32 (3, 4) in units of 2**-16, with half a level added."""
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
    """Return a list of numbers from text with commas; return anything else unchanged."""
    if not isinstance(given, str):
        return given
    return [plain_float(each) for each in given.split(",", 12)]


class ColorMatrix(_Mixing):
    """Mix red, green and blue by a matrix; a grey image becomes RGB."""

    matrix: Annotated[
        tuple[Entry, ...], BeforeValidator(_entries), Field(min_length=12, max_length=12)
    ] = Field(
        (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0),
        description="rows for new red, green, blue: weights of red, green, blue, and an offset, "
        "in which 1 is the whole range",
        json_schema_extra={"takes": "a list of 12 numbers from -8 to 8"},
    )

    example: ClassVar = {
        "matrix": [0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0],
    }
    tolerance: ClassVar = "exact in 16-bit fixed point, within 1 of floating point"

    def _exact(self) -> NDArray[np.float64]:
        return np.array(self.matrix).reshape(3, 4) * [1.0, 1.0, 1.0, 255.0]


class Sepia(_Mixing):
    """Give the image the brown tones of an old photograph; a grey image becomes RGB."""

    amount: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 replaces them")

    def _exact(self) -> NDArray[np.float64]:
        weights = (1 - self.amount) * np.eye(3) + self.amount * np.array(TONES)
        return np.pad(weights, ((0, 0), (0, 1)))


class Colorize(_Point):
    """Map tones to two or three colours (a duotone); a grey image becomes RGB."""

    black: HexColour = colour("000000", "colour of shadows")
    white: HexColour = colour("ffffff", "colour of highlights")
    mid: HexColour | None = colour(None, "colour of the middle tones; between both if left out")
    intensity: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 replaces them")

    example: ClassVar = {"black": "221c4a", "white": "ffd9a0"}
    result_shape: ClassVar = "colour"
    cpu_bytes_per_pixel: ClassVar = (10, 15)
    passes: ClassVar = (Pass("colorize"),)

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.colorize` of the luma, blended with the original: (H, W, 3)."""
        if colour.shape[2] == 1:
            colour = repeated(np.ascontiguousarray(colour[:, :, 0]), 3)
        toned = np.asarray(cv2.LUT(lumas(colour), self._table()), np.uint8).reshape(colour.shape)
        return toned if self.intensity == 1 else blend(colour, toned, self.intensity)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the colour of every level in four bytes each, then the intensity as float32."""
        table = np.pad(self._table()[0], ((0, 0), (0, 1)))
        return table.tobytes() + np.float32(self.intensity).tobytes()

    def _table(self) -> Pixels:
        """Return the colour of every level, uint8 (1, 256, 3)."""
        levels = Image.fromarray(LEVELS.reshape(1, 256))
        black, white = rgba(self.black)[:3], rgba(self.white)[:3]
        mid = None if self.mid is None else rgba(self.mid)[:3]
        return np.asarray(ImageOps.colorize(levels, black, white, mid))


ANGLE_BITS = 16
"""Bits of an angle: a sixth of the circle is 2**16 steps."""

SIXTH = 1 << ANGLE_BITS
"""A sixth of the circle, in steps."""

Plane = cv2.typing.MatLike
"""One channel, uint8 (H, W)."""


class Hue(_Point):
    """Turn all colours around the colour wheel; grey stays grey."""

    degrees: float = number(0, -180, 180, "degree", "angle, from red towards green")

    example: ClassVar = {"degrees": 90}
    passes: ClassVar = (Pass("hue"),)
    packed: ClassVar = ("<i", "_angle")
    tolerance: ClassVar = "within 1 of torchvision's adjust_hue in floating point"

    def recoloured(self, colour: Pixels) -> Pixels:
        """Turn hues and keep saturation and value of HSV, in integers, half up: uint8 (H, W, C).

        With V and m the largest and smallest colour, C = V - m, and h the turned hue from 0 to 6 in
        sixths of the circle: green is V - C·f(2) and blue V - C·f(4), where f(n) is |h - n| - 1
        clipped to 0…1, and red is m + C·f(3). HSV is that of A. R. Smith, "Color gamut transform
        pairs", 1978.
        """
        if colour.shape[2] == 1:
            return np.array(colour, order="C")
        sixths = (self._angle + SIXTH // 2) // SIXTH
        rest = self._angle - sixths * SIXTH
        result = np.empty(colour.shape, np.uint8)
        for rows in bands(len(colour), colour[0].size):
            result[rows] = _turned(colour[rows], sixths, rest)
        return result

    @property
    def _angle(self) -> int:
        """Return the angle in steps of 1 / 65,536 of a sixth of the circle."""
        return int(np.floor(self.degrees / 60 * (1 << ANGLE_BITS) + 0.5))


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
    """Return the three planes turned by `rest`; if `opposite`, V + m - c of each, half up."""
    value = cv2.max(cv2.max(planes[0], planes[1]), planes[2])
    least = cv2.min(cv2.min(planes[0], planes[1]), planes[2])
    chroma = cv2.subtract(value, least)
    shares = np.arange(256) * abs(rest) + (SIXTH // 2)
    up, down = ((shares - less) >> ANGLE_BITS for less in (opposite, 1 - opposite))
    high = cv2.subtract(value, cv2.LUT(chroma, down.astype(np.uint8)))
    low = cv2.add(least, cv2.LUT(chroma, up.astype(np.uint8)))
    turned, ahead = [], 1 if rest >= 0 else 2
    for n, plane in enumerate(planes):
        following = planes[(n + ahead) % 3]
        new = cv2.min(cv2.add(plane, cv2.subtract(low, following)), value)
        new = cv2.max(cv2.subtract(new, cv2.subtract(following, high)), least)
        turned.append(cv2.add(cv2.subtract(value, new), least) if opposite else new)
    return turned


class Saturation(_Point):
    """Move all colours away from their luma, or towards it."""

    factor: float = number(1, 0, 8, "ratio", "0 gives grey, 1 the original")

    example: ClassVar = {"factor": 1.5}
    passes: ClassVar = (Pass("saturation"),)
    packed: ClassVar = ("<f", "factor")

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Color`: a blend of the luma and the image."""
        return blend(lumas(colour), colour, self.factor)


class Grayscale(_Point):
    """Fade colours to their luma; the number of channels stays."""

    amount: float = number(1, 0, 1, "ratio", "0 keeps the colours, 1 removes them")

    passes: ClassVar = (Pass("grayscale"),)
    packed: ClassVar = ("<f", "amount")

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return Pillow's `convert("L")`, blended with the original."""
        return blend(colour, lumas(colour), self.amount)
