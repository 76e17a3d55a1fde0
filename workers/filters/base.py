"""What a filter is: one frozen pydantic model that holds its parameters and its CPU specification.

Common rules: uint8 in and out, (H, W, C) with C = 1 grey, 3 RGB, 4 RGB with straight alpha; the
result has the input's shape unless a filter says otherwise; nothing is changed in place.
"""

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict

from models.domain.image import Pixels
from workers.kernels.items import Pass, Shape

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
    RGB), no alpha, turned, or resized; `tolerance` is the distance held to the reference;
    `device_tolerance` the share of samples that a GPU may give one level off the specification;
    `passes` are its launches on a GPU, in order, none as long as it runs on the CPU alone;
    `device_passes` are those of its parameters, where they decide.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    example: ClassVar[dict[str, Any]]
    alpha_rule: ClassVar[str]
    border: ClassVar[str | None] = None
    result_shape: ClassVar[Literal["same", "colour", "no alpha", "turned", "resized"]] = "same"
    tolerance: ClassVar[str] = "exact"
    device_tolerance: ClassVar[float] = 0
    passes: ClassVar[tuple[Pass, ...]] = ()

    @abstractmethod
    def apply(self, pixels: Pixels) -> Pixels:
        """The specification: uint8 (H, W, C) to uint8 (H, W, C)."""

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """The launches that these parameters need; jobs share a batch if theirs are equal."""
        return self.passes

    def device_data(self, shape: Shape) -> bytes:
        """What the kernels of `passes` read as an item's `data`, for an image of this shape."""
        return b""

    def table(self) -> NDArray[np.uint8] | None:
        """256 × uint8: what each level of a colour becomes, where nothing else has a say in it.

        None where more than the level matters. In a chain, neighbours with tables run as one.
        """
        return None

    def device_scratch(self, shape: Shape) -> int:
        """Bytes that the passes need beside an image of this shape and its result."""
        return 4 * math.prod(shape)

    def shape_after(self, shape: Shape) -> Shape:
        """The result's shape, for an image of this one; raises what `size_after` raises."""
        height, width, channels = shape
        if self.result_shape == "colour":
            channels = max(channels, 3)
        elif self.result_shape == "no alpha":
            channels = min(channels, 3)
        return (*self.size_after(height, width), channels)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """The result's height and width; raises InvalidParameter for an image it cannot take."""
        return height, width
