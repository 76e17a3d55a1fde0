"""What a filter is: one frozen pydantic model that holds its parameters and its CPU specification.

Common rules: uint8 in and out, (H, W, C) with C = 1 grey, 3 RGB, 4 RGB with straight alpha; the
result has the input's shape unless a filter says otherwise; nothing is changed in place.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from models.image import Pixels

SPEC_VERSION = 1
"""Raised whenever any filter gives different bytes for the same request."""


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


Odd = Annotated[int, AfterValidator(_odd)]
"""The side of a square that has a middle."""


class Filter(BaseModel):
    """Base of every filter: the declaration is the class, its parameters are the fields.

    `alpha_rule` is point (colour only), premul (colour times alpha is filtered), plane (alpha is
    one more plane), keep (alpha is copied) or drop; `result_shape` is same, colour (grey becomes
    RGB), no alpha, or turned; `tolerance` is the distance held to the reference;
    `cuda` is the kernel's CUDA source, None as long as the filter runs on the CPU alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    example: ClassVar[dict[str, Any]]
    alpha_rule: ClassVar[str]
    border: ClassVar[str | None] = None
    result_shape: ClassVar[Literal["same", "colour", "no alpha", "turned"]] = "same"
    tolerance: ClassVar[str] = "exact"
    cuda: ClassVar[str | None] = None

    @abstractmethod
    def apply(self, pixels: Pixels) -> Pixels:
        """The specification: uint8 (H, W, C) to uint8 (H, W, C)."""
