"""The threshold filter."""

import struct
from typing import ClassVar, Literal

from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey, luma
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class Threshold(Filter):
    """Reduce the image to two tones: lumas above a value become light, the others black."""

    name: Literal["threshold"] = "threshold"
    value: int = Field(
        128,
        ge=0,
        le=255,
        description="lumas above this become light",
        json_schema_extra={"unit": "level"},
    )
    max: int = Field(
        255,
        ge=0,
        le=255,
        description="level of the light tone",
        json_schema_extra={"unit": "level"},
    )

    example: ClassVar = {"name": "threshold", "value": 100}
    alpha_rule: ClassVar = "point"
    row_reach: ClassVar = 0
    passes: ClassVar = (Pass("apply_threshold"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.threshold` with THRESH_BINARY on the luma: `max` where it is strictly above
        `value`.

        uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        light = (luma(pixels) > self.value).astype("uint8")
        return as_grey(light * self.max, pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the threshold and the light tone, uint32 each."""
        return struct.pack("<2I", self.value, self.max)
