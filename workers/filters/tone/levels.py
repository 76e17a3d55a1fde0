"""The levels filter."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import TABLE_PASSES, rounded_table, through_table
from workers.filters.base import Filter


class Levels(Filter):
    """Stretch a range of tones onto another one, as the levels of a paint program do."""

    name: Literal["levels"] = "levels"
    in_black: int = Field(
        0,
        ge=0,
        le=254,
        description="level that becomes out_black",
        json_schema_extra={"unit": "level"},
    )
    in_white: int = Field(
        255,
        ge=1,
        le=255,
        description="level that becomes out_white",
        json_schema_extra={"unit": "level", "above": "in_black"},
    )
    gamma: float = Field(
        1,
        ge=0.05,
        le=20,
        description="exponent; above 1 the middle tones get lighter",
        json_schema_extra={"unit": "ratio"},
    )
    out_black: int = Field(
        0,
        ge=0,
        le=255,
        description="level that in_black becomes",
        json_schema_extra={"unit": "level"},
    )
    out_white: int = Field(
        255,
        ge=0,
        le=255,
        description="level that in_white becomes",
        json_schema_extra={"unit": "level"},
    )

    example: ClassVar = {"name": "levels", "in_black": 20, "in_white": 235}
    alpha_rule: ClassVar = "point"
    passes: ClassVar = TABLE_PASSES

    @field_validator("in_white")
    @classmethod
    def _above(cls, in_white: int, info: ValidationInfo) -> int:
        """Return `in_white`; raise ValueError if it is not above `in_black`."""
        if in_white <= info.data.get("in_black", 0):
            raise ValueError("must be above in_black")
        return in_white

    def apply(self, pixels: Pixels) -> Pixels:
        """Return out_black + (out_white - out_black) · t^(1 / gamma), half up: uint8 (H, W, C).

        t is the position of a sample between in_black and in_white, clipped to 0…1; alpha is
        copied.
        """
        return through_table(pixels, self.table())

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256,)."""
        share = (np.arange(256) - self.in_black) / (self.in_white - self.in_black)
        bent = np.clip(share, 0, 1) ** (1 / self.gamma)
        return rounded_table(self.out_black + (self.out_white - self.out_black) * bent)
