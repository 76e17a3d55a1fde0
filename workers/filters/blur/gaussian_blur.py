"""The gaussian_blur filter."""

from functools import partial
from typing import ClassVar, Literal

import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.sums import filtered
from workers.filters.base import Filter, number
from workers.filters.separable.gaussian import (
    COLUMNS,
    ROWS,
    blurred,
    blurred_levels,
    device_taps,
    reach,
    tile_taps,
    to_byte,
    wide_reach,
)
from workers.filters.separable.mma_fragments import FAR, NEAR
from workers.kernels.items import Pass, Shape

_IN_TILES = {
    NEAR: Pass("gaussian_reach_8", channels=(1, 3)),
    FAR: Pass("gaussian_reach_24", channels=(1, 3)),
}
_WIDE = (
    Pass("gaussian_rows_mma", channels=(1, 3)),
    Pass("gaussian_columns_mma", channels=(1, 3)),
)
_WITH_ALPHA = (ROWS._replace(channels=(4,)), COLUMNS._replace(channels=(4,)))


class GaussianBlur(Filter):
    """Blur with a Gaussian in fixed point, which gives the same bytes on every device."""

    name: Literal["gaussian_blur"] = "gaussian_blur"
    sigma: float = number(2, 0.1, 100, "px", "standard deviation")
    sigma_y: float | None = number(
        None, 0.1, 100, "px", "vertical standard deviation, if it differs"
    )

    example: ClassVar = {"name": "gaussian_blur", "sigma": 2}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (10, 29)
    border: ClassVar = "replicate"
    passes: ClassVar = (ROWS, COLUMNS, *_IN_TILES.values(), *_WIDE)
    tolerance: ClassVar = "within 1 of scipy.ndimage.gaussian_filter in float64, on at most 0.2 %"

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the two fixed-point passes of `workers.filters.separable.gaussian`, rounded half
        up.

        uint8 (H, W, C) to uint8 (H, W, C); with alpha, colours are filtered times alpha.
        """
        if pixels.shape[2] == 4:
            return filtered(
                pixels, partial(blurred, sigma_x=self.sigma, sigma_y=self._down), to_byte
            )
        result = np.empty(pixels.shape, np.uint8)
        for place, levels in blurred_levels(pixels, self.sigma, self._down):
            result[place] = levels
        return result

    @property
    def rows_around(self) -> int:
        """Return the vertical radius of the window."""
        return int(4 * self._down + 0.5)

    @property
    def columns_around(self) -> int:
        """Return the horizontal radius of the window."""
        return int(4 * self.sigma + 0.5)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass for small windows, else a pass along rows and a pass along columns.

        Images with alpha always take the two passes of `device_taps`.
        """
        far = reach(self.sigma, self._down)
        if far is not None:
            return (_IN_TILES[far], *_WITH_ALPHA)
        return (*_WIDE, *_WITH_ALPHA) if wide_reach(self.sigma, self._down) else (ROWS, COLUMNS)

    def device_data(self, shape: Shape) -> bytes:
        """Return the weights, as the passes for this number of channels read them."""
        if shape[2] < 4 and wide_reach(self.sigma, self._down):
            return tile_taps(self.sigma, self._down)
        return device_taps(self.sigma, self._down, premultiplied=shape[2] == 4)

    @property
    def _down(self) -> float:
        return self.sigma_y or self.sigma
