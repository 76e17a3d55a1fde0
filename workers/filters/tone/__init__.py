"""Filters that map each level to a level, independent of where the pixel is."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationInfo, field_validator

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import LEVELS, blend, luma, rounded_table
from workers.filters.arithmetic.sums import COUNTED, pieces
from workers.filters.base import ComposedTables, CountingFilter, TableFilter, number
from workers.kernels.items import Pass


class Brightness(TableFilter):
    """Multiply all colours by a factor."""

    factor: float = number(1, 0, 8, "ratio", "0 gives black, 1 the original")

    example: ClassVar = {"factor": 1.3}

    def table(self) -> NDArray[np.uint8]:
        """Return the table of Pillow's `ImageEnhance.Brightness`, uint8 (256, 1, 1)."""
        return blend(0, LEVELS, self.factor)


class CurveFilter(TableFilter):
    """Base class of filters that are defined for samples of 8 and of 16 bits."""

    def table(self) -> NDArray[np.uint8]:
        """Return the curve of 256 levels, rounded half up and clipped: uint8 (256,)."""
        return rounded_table(self.curve(255))

    @abstractmethod
    def curve(self, white: int) -> NDArray[np.float64]:
        """Return the exact new values of the samples from 0 to `white`, 255 or 65,535."""


class Gamma(CurveFilter):
    """Raise all tones to a power: above 1 the middle tones get darker, below 1 lighter."""

    gamma: float = number(1, 0.05, 20, "ratio", "exponent")
    gain: float = number(1, 0, 8, "ratio", "factor on the result")

    example: ClassVar = {"gamma": 0.7}

    def curve(self, white: int) -> NDArray[np.float64]:
        """Return white · gain · (x / white)^gamma, as `skimage.exposure.adjust_gamma`."""
        return white * self.gain * (np.arange(white + 1) / white) ** self.gamma


class Invert(CurveFilter):
    """Turn every colour into its complement."""

    def curve(self, white: int) -> NDArray[np.float64]:
        """Return white - x, as Pillow's `ImageOps.invert`."""
        return white - np.arange(white + 1.0)


class Levels(CurveFilter):
    """Stretch a range of tones onto another one, as the levels of a paint program do."""

    in_black: int = number(0, 0, 254, "level", "level that becomes out_black")
    in_white: int = number(255, 1, 255, "level", "level that becomes out_white", above="in_black")
    gamma: float = number(1, 0.05, 20, "ratio", "exponent; above 1 the middle tones get lighter")
    out_black: int = number(0, 0, 255, "level", "level that in_black becomes")
    out_white: int = number(255, 0, 255, "level", "level that in_white becomes")

    example: ClassVar = {"in_black": 20, "in_white": 235}

    @field_validator("in_white")
    @classmethod
    def _above(cls, in_white: int, info: ValidationInfo) -> int:
        """Return `in_white`; raise ValueError if it is not above `in_black`."""
        if in_white <= info.data.get("in_black", 0):
            raise ValueError("must be above in_black")
        return in_white

    def curve(self, white: int) -> NDArray[np.float64]:
        """Return out_black + (out_white - out_black) · t^(1 / gamma), in levels of white / 255.

        t is the position of a sample between in_black and in_white, clipped to 0…1.
        """
        level = white // 255
        share = (np.arange(white + 1) / level - self.in_black) / (self.in_white - self.in_black)
        bent = np.clip(share, 0, 1) ** (1 / self.gamma)
        return level * (self.out_black + (self.out_white - self.out_black) * bent)


class Posterize(TableFilter):
    """Keep only the highest bits of every colour."""

    bits: int = number(4, 1, 8, "bit", "bits that are kept")

    example: ClassVar = {"bits": 3}

    def table(self) -> NDArray[np.uint8]:
        """Return the table of Pillow's `ImageOps.posterize`, uint8 (256, 1, 1)."""
        dropped = 8 - self.bits
        return np.asarray(LEVELS >> dropped << dropped, np.uint8)


class Solarize(TableFilter):
    """Invert every colour from a threshold on."""

    threshold: int = number(
        128, 0, 256, "level", "darkest level that is inverted; 256 inverts none"
    )

    def table(self) -> NDArray[np.uint8]:
        """Return the table of Pillow's `ImageOps.solarize`, uint8 (256, 1, 1)."""
        return np.where(self.threshold > LEVELS, LEVELS, 255 - LEVELS)


class Contrast(CountingFilter):
    """Spread all colours around the image's mean luma."""

    factor: float = number(1, 0, 8, "ratio", "0 gives plain grey, 1 the original")

    example: ClassVar = {"factor": 1.3}
    passes: ClassVar = (Pass("luma_sum"), Pass("contrast"))
    packed: ClassVar = ("<8xf4x", "factor")  # after room for the sum of all lumas, uint64

    def counted(self, pixels: Pixels) -> ComposedTables:
        """Return the table of Pillow's `ImageEnhance.Contrast` for the mean luma of this image.

        The mean luma is an exact 64-bit sum over all pixels, divided and rounded half up.
        """
        height, width = pixels.shape[:2]
        total = sum(int(luma(each).sum(dtype=np.uint64)) for each in pieces(pixels, COUNTED))
        table = blend(int(total / (height * width) + 0.5), LEVELS, self.factor)
        return ComposedTables(levels=table.tobytes())
