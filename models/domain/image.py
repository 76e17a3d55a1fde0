"""Images in memory: pixels, an encoded JPEG that a device will decode, or the input of a network.

`models.codec` converts files to images and back.
"""

from dataclasses import dataclass
from enum import StrEnum

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
        """Return the rows, in pixels."""
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        """Return the columns, in pixels."""
        return int(self.pixels.shape[1])

    @property
    def channels(self) -> int:
        """Return 1, 3 or 4."""
        return int(self.pixels.shape[2])

    @property
    def n_pixels(self) -> int:
        """Return height times width."""
        return self.height * self.width


class Subsampling(StrEnum):
    """How a JPEG stores its chroma: in full, half as wide, half as wide and high, not at all."""

    S444 = "4:4:4"
    S422 = "4:2:2"
    S420 = "4:2:0"
    GREY = "grey"


@dataclass(frozen=True, slots=True, eq=False)
class Jpeg:
    """A whole baseline JPEG, checked by `models.codec.jpeg`: uint8 (n,).

    `height` and `width` describe the upright image, in pixels; `orientation` is EXIF's, 1..8.
    `shaper` converts its pixels to sRGB (`models.codec.matrix_shaper`); None if they are in sRGB.
    """

    data: Pixels
    height: int
    width: int
    orientation: int
    subsampling: Subsampling
    shaper: bytes | None = None

    @property
    def channels(self) -> int:
        """Return the channels of its pixels, 1 or 3."""
        return 1 if self.subsampling is Subsampling.GREY else 3

    @property
    def n_pixels(self) -> int:
        """Return height times width."""
        return self.height * self.width


@dataclass(frozen=True, slots=True, eq=False)
class NetworkInput:
    """An image that its client has preprocessed: `values` is float32 (3, height, width).

    It is C-contiguous, and cropped and normalised as the network expects it.
    """

    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        shape, dtype = self.values.shape, self.values.dtype
        if len(shape) != 3 or shape[0] != 3 or 0 in shape or dtype != np.float32:
            raise ValueError(f"an input is float32 (3, height, width), not {dtype} {shape}")

    @property
    def height(self) -> int:
        """Return the rows."""
        return int(self.values.shape[1])

    @property
    def width(self) -> int:
        """Return the columns."""
        return int(self.values.shape[2])

    @property
    def channels(self) -> int:
        """Return 3."""
        return 3

    @property
    def n_pixels(self) -> int:
        """Return the number of values: each takes as much memory as a pixel of RGBA."""
        return int(self.values.size)


Source = Image | Jpeg | NetworkInput
"""The input of a job. Every engine accepts all; only some front ends send JPEGs.

A `NetworkInput` is for a network alone, by an operation that is `preprocessed`."""
