"""The gaussian_blur filter."""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.gaussian import COLUMNS, ROWS, blurred, device_taps, to_byte
from workers.filters.premultiplied import filtered
from workers.kernels.items import Shape


class GaussianBlur(Filter):
    """Blur with a Gaussian, in fixed point: the same bytes on every device."""

    name: Literal["gaussian_blur"] = "gaussian_blur"
    sigma: float = Field(
        2, ge=0.1, le=100, description="standard deviation", json_schema_extra={"unit": "px"}
    )
    sigma_y: float | None = Field(
        None,
        ge=0.1,
        le=100,
        description="vertical standard deviation, if another",
        json_schema_extra={"unit": "px"},
    )

    example: ClassVar = {"name": "gaussian_blur", "sigma": 2}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "replicate"
    passes: ClassVar = (ROWS, COLUMNS)
    tolerance: ClassVar = "within 1 of scipy.ndimage.gaussian_filter in float64, on at most 0.2 %"

    def apply(self, pixels: Pixels) -> Pixels:
        """Two passes of `workers.filters.gaussian`."""
        sums = partial(blurred, sigma_x=self.sigma, sigma_y=self.sigma_y or self.sigma)
        return filtered(pixels, sums, to_byte)

    def device_data(self, shape: Shape) -> bytes:
        """The weights."""
        return device_taps(self.sigma, self.sigma_y or self.sigma, premultiplied=shape[2] == 4)
