"""The box_blur filter."""

from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.premultiplied import Planes, filtered


class BoxBlur(Filter):
    """Average over a square of 2 · radius + 1 pixels a side."""

    name: Literal["box_blur"] = "box_blur"
    radius: int = Field(
        2, ge=0, le=500, description="of the square", json_schema_extra={"unit": "px"}
    )

    example: ClassVar = {"name": "box_blur", "radius": 2}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "replicate"

    def apply(self, pixels: Pixels) -> Pixels:
        """(2·S + k²) // (2·k²) with k = 2r+1 and S the exact sum: cv2.blur, half rounded up."""
        side = 2 * self.radius + 1

        def sums(planes: Planes) -> NDArray[np.int64]:
            box = (side, side)
            border = cv2.BORDER_REPLICATE
            total = cv2.boxFilter(planes, cv2.CV_64F, box, normalize=False, borderType=border)
            return total.reshape(planes.shape).astype(np.int64)

        def rounded(total: NDArray[np.int64]) -> NDArray[np.int64]:
            return (2 * total + side * side) // (2 * side * side)

        return filtered(pixels, sums, rounded)
