"""The equalize and autocontrast filters: tables that Pillow makes of the counts of levels."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, cast

import cv2
import numpy as np
from PIL import Image, ImageOps
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import COUNTS, THROUGH_TABLES, by_pillow, counted
from workers.filters.arithmetic.tiling import COUNTED, pieces
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape


class ChannelTables(Filter):
    """Map the samples of each channel, alpha too, by a table of its own: 256 bytes a channel."""

    name: Literal["channel_tables"] = "channel_tables"
    levels: bytes

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, C) after a look-up for each sample."""
        tables = np.frombuffer(self.levels, np.uint8).reshape(-1, 1, 256)
        mapped = cv2.LUT(np.ascontiguousarray(pixels), cv2.merge([*tables]))
        return np.asarray(mapped, np.uint8).reshape(pixels.shape)


def tables_by_pillow(pixels: Pixels, function: Callable[[Image.Image], object]) -> ChannelTables:
    """Return the tables that a function of `PIL.ImageOps` applies.

    The function counts levels and ends with `image.point(tables)`. It is given an image that has
    the counts alone, so that no copy of the pixels is made. Alpha keeps its levels.
    """
    n = min(pixels.shape[2], 3)
    levels = np.asarray(function(cast(Image.Image, _Counted(pixels)))).reshape(n, 256)
    tables = np.clip(levels, 0, 255).astype(np.uint8)  # as Pillow's own `point` does
    alpha = bytes(range(256)) if pixels.shape[2] == 4 else b""
    return ChannelTables(levels=tables.tobytes() + alpha)


class _Counted:
    """The part of an image that `PIL.ImageOps` uses: its mode, its histogram, and to apply
    tables.
    """

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


class Equalize(Filter):
    """Spread the tones of each colour so that all of them are about equally frequent."""

    name: Literal["equalize"] = "equalize"

    example: ClassVar = {"name": "equalize"}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    cpu_bytes_per_pixel: ClassVar = (14, 17)
    passes: ClassVar = (COUNTS[0], Pass("equalize_tables"), THROUGH_TABLES)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.equalize` of uint8 (H, W, C), channel by channel; alpha is
        copied.

        OpenCV's equalizeHist differs from it by up to 27 levels.
        """
        return by_pillow(pixels, ImageOps.equalize)

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables that Pillow makes of the counts of this image."""
        return tables_by_pillow(pixels, ImageOps.equalize)

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for counts and tables."""
        return counted()


class Autocontrast(Filter):
    """Stretch the tones of the image over the whole range."""

    name: Literal["autocontrast"] = "autocontrast"
    cutoff: float = number(
        0, 0, 49.9, "%", "share of the darkest and of the lightest samples that may be lost"
    )
    preserve_tone: bool = Field(
        False, description="stretch by the luma, which keeps hues, instead of channel by channel"
    )

    example: ClassVar = {"name": "autocontrast", "cutoff": 1}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    cpu_bytes_per_pixel: ClassVar = (14, 17)
    passes: ClassVar = (*COUNTS, Pass("autocontrast_tables"), THROUGH_TABLES)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.autocontrast` of uint8 (H, W, C); alpha is copied."""
        return by_pillow(
            pixels,
            lambda image: ImageOps.autocontrast(
                image, self.cutoff, preserve_tone=self.preserve_tone
            ),
        )

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables that Pillow makes of the counts of this image."""
        stretch = partial(
            ImageOps.autocontrast, cutoff=self.cutoff, preserve_tone=self.preserve_tone
        )
        return tables_by_pillow(pixels, stretch)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass that counts levels or lumas, then the passes that make and apply the
        tables.
        """
        return (COUNTS[self.preserve_tone], *self.passes[2:])

    def device_data(self, shape: Shape) -> bytes:
        """Return the samples that may be lost at either end, as Pillow counts them, and
        `preserve_tone`.
        """
        cut = int(shape[0] * shape[1] * self.cutoff // 100)
        return counted(cut, self.preserve_tone)
