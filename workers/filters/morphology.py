"""The morphology filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import join_alpha, split_alpha

_OPERATIONS = {
    "erode": cv2.MORPH_ERODE,
    "dilate": cv2.MORPH_DILATE,
    "open": cv2.MORPH_OPEN,
    "close": cv2.MORPH_CLOSE,
    "gradient": cv2.MORPH_GRADIENT,
    "tophat": cv2.MORPH_TOPHAT,
    "blackhat": cv2.MORPH_BLACKHAT,
}
_SHAPES = {"rect": cv2.MORPH_RECT, "cross": cv2.MORPH_CROSS, "ellipse": cv2.MORPH_ELLIPSE}


class Morphology(Filter):
    """Shrink or grow light things, drop small ones, or show what that changed."""

    name: Literal["morphology"] = "morphology"
    op: Literal["erode", "dilate", "open", "close", "gradient", "tophat", "blackhat"] = Field(
        "erode", description="the last three show a difference, and leave alpha as it is"
    )
    shape: Literal["rect", "cross", "ellipse"] = Field("rect", description="of the neighbourhood")
    size: int = Field(
        3, ge=3, le=201, description="side of the neighbourhood", json_schema_extra={"unit": "px"}
    )
    iterations: int = Field(
        1, ge=1, le=16, description="how often", json_schema_extra={"unit": "time"}
    )

    example: ClassVar = {"name": "morphology", "op": "open", "size": 5}
    alpha_rule: ClassVar = "plane"
    border: ClassVar = "outside ignored"

    def apply(self, pixels: Pixels) -> Pixels:
        """`cv2.morphologyEx`, channel by channel."""
        differs = self.op in ("gradient", "tophat", "blackhat")
        source, alpha = split_alpha(pixels) if differs else (pixels, None)
        kernel = cv2.getStructuringElement(_SHAPES[self.shape], (self.size, self.size))
        found = cv2.morphologyEx(
            np.ascontiguousarray(source),
            _OPERATIONS[self.op],
            kernel,
            iterations=self.iterations,
        )
        return join_alpha(np.asarray(found, np.uint8).reshape(source.shape), alpha)
