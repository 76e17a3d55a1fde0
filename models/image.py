"""Pixels in memory. Knows nothing of files; `models.codec` makes them from bytes and back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """An upright sRGB image: `pixels` is uint8 (height, width, channels), C-contiguous.

    Channels: 1 is grey (L), 3 is RGB, 4 is RGB with straight alpha.
    """

    pixels: Pixels

    def __post_init__(self) -> None:
        shape, dtype = self.pixels.shape, self.pixels.dtype
        if len(shape) != 3 or shape[2] not in (1, 3, 4) or 0 in shape or dtype != np.uint8:
            raise ValueError(f"an image is uint8 (height, width, 1 | 3 | 4), not {dtype} {shape}")

    @property
    def height(self) -> int:
        """Rows, in pixels."""
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        """Columns, in pixels."""
        return int(self.pixels.shape[1])

    @property
    def channels(self) -> int:
        """1, 3 or 4."""
        return int(self.pixels.shape[2])

    @property
    def n_pixels(self) -> int:
        """Height times width."""
        return self.height * self.width
