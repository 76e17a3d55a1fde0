"""The unsharp_mask filter."""

from typing import ClassVar, Literal

import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter, number
from workers.filters.separable.gaussian import ROWS, blurred_levels, device_taps, reach, tile_taps
from workers.filters.separable.mma_fragments import FAR, NEAR
from workers.kernels.items import Pass, Shape

_IN_TILES = {NEAR: Pass("unsharp_reach_8"), FAR: Pass("unsharp_reach_24")}
_COLUMNS = Pass("unsharp_columns")


class UnsharpMask(Filter):
    """Sharpen by adding the details that a Gaussian blur removes."""

    name: Literal["unsharp_mask"] = "unsharp_mask"
    sigma: float = number(2, 0.1, 100, "px", "standard deviation of the blur")
    amount: float = number(1.5, 0, 10, "ratio", "share of the difference that is added")
    threshold: int = number(0, 0, 255, "levels", "smallest difference that is changed")

    example: ClassVar = {"name": "unsharp_mask", "sigma": 2, "amount": 1.5}
    alpha_rule: ClassVar = "keep"
    cpu_bytes_per_pixel: ClassVar = (10, 15)
    border: ClassVar = "replicate"
    passes: ClassVar = (ROWS, _COLUMNS, *_IN_TILES.values())
    tolerance: ClassVar = "within 1 of skimage.filters.unsharp_mask in float64"

    # G has the 24 fractional bits of its sums, amount has 16, and 12 bits are before the point:
    # float64 holds all 52. `level` and `levels` both include the half that rounds, so it cancels in
    # their difference and stays in the result, which is then truncated.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return x + amount · (x - G) where |x - G| >= threshold, half up, else x: uint8 (H, W, C).

        G is the Gaussian blur; G and amount are in fixed point.
        """
        colour, alpha = split_alpha(pixels)
        amount = self._amount() / (1 << 16)
        result = np.empty(colour.shape, np.uint8)
        for place, levels in blurred_levels(colour, self.sigma, self.sigma):
            level = colour[place].astype(np.float64)
            level += 0.5
            difference = np.subtract(level, levels, out=levels)
            weak = np.abs(difference) < self.threshold if self.threshold else None
            difference *= amount
            difference += level
            result[place] = np.clip(difference, 0, 255, out=difference)
            if weak is not None:
                np.copyto(result[place], colour[place], where=weak)
        return join_alpha(result, alpha)

    @property
    def rows_around(self) -> int:
        """Return the radius of the window."""
        return int(4 * self.sigma + 0.5)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass for small windows, else a pass along rows and a pass along
        columns.
        """
        far = reach(self.sigma, self.sigma)
        return (ROWS, _COLUMNS) if far is None else (_IN_TILES[far],)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the weights, the amount in Q16 and the threshold in levels."""
        if reach(self.sigma, self.sigma):
            return tile_taps(self.sigma, self.sigma, self._amount(), self.threshold)
        return device_taps(
            self.sigma,
            self.sigma,
            premultiplied=False,
            amount=self._amount(),
            threshold=self.threshold,
        )

    def _amount(self) -> int:
        return int(self.amount * 65536 + 0.5)
