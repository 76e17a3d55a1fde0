"""The unsharp_mask filter."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha
from workers.filters.gaussian import COLUMN_BITS, MIDDLE_BITS, blurred


class UnsharpMask(Filter):
    """Sharpen by adding what a Gaussian blur takes away."""

    name: Literal["unsharp_mask"] = "unsharp_mask"
    sigma: float = Field(
        2,
        ge=0.1,
        le=100,
        description="standard deviation of the blur",
        json_schema_extra={"unit": "px"},
    )
    amount: float = Field(1.5, ge=0, le=10, description="how much of the difference to add")
    threshold: int = Field(
        0,
        ge=0,
        le=255,
        description="differences smaller than this are left alone",
        json_schema_extra={"unit": "levels"},
    )

    example: ClassVar = {"name": "unsharp_mask", "sigma": 2, "amount": 1.5}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"
    tolerance: ClassVar = "within 1 of skimage.filters.unsharp_mask in float64"

    def apply(self, pixels: Pixels) -> Pixels:
        """x + amount · (x - G) where |x - G| >= threshold, half-up; G and amount in fixed point.

        G keeps the 24 fractional bits of the Gaussian's sums, amount has 16: all fits int64.
        """
        bits = COLUMN_BITS + MIDDLE_BITS
        colour, alpha = split_alpha(pixels)
        level = colour.astype(np.int64) << bits
        difference = level - blurred(colour.astype(np.float64), self.sigma, self.sigma)
        amount = int(self.amount * 65536 + 0.5)
        sharpened = ((level << 16) + difference * amount + (1 << (bits + 15))) >> (bits + 16)
        strong = np.abs(difference) >= self.threshold << bits
        result = np.where(strong, np.clip(sharpened, 0, 255), colour).astype(np.uint8)
        return join_alpha(result, alpha)
