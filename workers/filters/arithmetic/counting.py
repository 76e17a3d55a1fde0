"""Count levels piece by piece, and let Pillow make tables of the counts."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.tiling import pieces

COUNTED = 1 << 20
"""Samples that are counted at a time."""


def tables_by_pillow(
    pixels: Pixels, function: Callable[[Image.Image], object]
) -> NDArray[np.uint8]:
    """Return the tables, uint8 (channels, 256), that a function of `PIL.ImageOps` applies.

    The function counts levels and ends with `image.point(tables)`. It is given an image that has
    the counts alone, so that no copy of the pixels is made. Alpha keeps its levels.
    """
    n = min(pixels.shape[2], 3)
    levels = np.asarray(function(cast(Image.Image, _Counted(pixels)))).reshape(n, 256)
    tables = np.clip(levels, 0, 255).astype(np.uint8)  # as Pillow's own `point` does
    alpha = [np.arange(256, dtype=np.uint8)[None]] if pixels.shape[2] == 4 else []
    return np.concatenate([tables, *alpha])


class _Counted:
    """What `PIL.ImageOps` asks of an image: its mode, its histogram, and to apply tables."""

    def __init__(self, pixels: Pixels, *, as_luma: bool = False) -> None:
        self._pixels = pixels
        self._as_luma = as_luma
        self.mode = "L" if pixels.shape[2] == 1 or as_luma else "RGB"

    def convert(self, mode: str) -> "_Counted":
        """Return the same image, of which lumas are counted."""
        assert mode == "L"
        return _Counted(self._pixels, as_luma=True)

    def histogram(self, mask: None = None) -> list[int]:
        """Return the counts of 256 levels for each colour, or of lumas."""
        assert mask is None
        counts = sum(
            np.array(self._picture(piece).histogram(), np.int64)
            for piece in pieces(self._pixels, COUNTED)
        )
        return [int(count) for count in cast(Any, counts)]

    def point(self, tables: list[int]) -> list[int]:
        """Return the tables in place of an image that they were applied to."""
        return tables

    def _picture(self, pixels: Pixels) -> Image.Image:
        colour = np.ascontiguousarray(pixels[:, :, :3])
        picture = Image.fromarray(colour[:, :, 0] if colour.shape[2] == 1 else colour)
        return picture.convert("L") if self._as_luma else picture
