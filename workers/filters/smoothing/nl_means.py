"""The nl_means filter."""

from typing import ClassVar, Literal

from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter, Odd
from workers.filters.smoothing.patch_distances import PatchDistances
from workers.kernels.items import Pass, Shape


class NlMeans(Filter):
    """Remove noise and keep detail: weight pixels by the similarity of their surroundings. Slow."""

    name: Literal["nl_means"] = "nl_means"
    h: float = Field(
        10,
        ge=1,
        le=100,
        description="strength: about the standard deviation of the noise",
        json_schema_extra={"unit": "level"},
    )
    patch: Odd = Field(
        7,
        ge=1,
        le=15,
        description="side of the squares that are compared, odd",
        json_schema_extra={"unit": "px", "not": {"multipleOf": 2}},
    )
    search: Odd = Field(
        21,
        ge=3,
        le=21,
        description="side of the square of neighbours, odd",
        json_schema_extra={"unit": "px", "not": {"multipleOf": 2}},
    )

    example: ClassVar = {"name": "nl_means", "h": 8, "patch": 5, "search": 15}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "mirror"
    tolerance: ClassVar = "within 1 of its formula in float64"
    passes: ClassVar = (Pass("nl_means"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return means weighted by exp(-d / h²), half up: uint8 (H, W, C); alpha is copied.

        Source: A. Buades, B. Coll, J.-M. Morel, 2005. d is the mean squared difference of two
        patches over all colours, as in OpenCV's fastNlMeansDenoising, from which this differs by at
        most 2 levels. The definition is our own, in integers: weights have 14 bits and come from a
        table indexed by the sum of squares (`smoothing/patch_distances.py`).
        """
        colour, alpha = split_alpha(pixels)
        return join_alpha(self._distances(colour.shape[2]).denoised(colour), alpha)

    @property
    def rows_around(self) -> int:
        """Return the reach of the search and of a patch."""
        return self.search // 2 + self.patch // 2

    def device_data(self, shape: Shape) -> bytes:
        """Return the reaches, the shift and the table of weights (`PatchDistances.device_data`)."""
        return self._distances(min(shape[2], 3)).device_data()

    def device_scratch(self, _shape: Shape) -> int:
        """Return 0 bytes: the kernel keeps its tiles in shared memory."""
        return 0

    def _distances(self, channels: int) -> PatchDistances:
        return PatchDistances(self.h, self.patch, self.search, channels)
