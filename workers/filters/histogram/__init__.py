"""Filters that map levels by the histogram of the image: autocontrast, equalize and CLAHE."""

import math
import struct
from collections.abc import Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import (
    COUNTS,
    THROUGH_TABLES,
    counted,
    join_alpha,
    luma,
    split_alpha,
)
from workers.filters.arithmetic.sums import COUNTED, bands, pieces
from workers.filters.base import CountingFilter, Filter, PieceFilter, number
from workers.kernels.items import Grid, Pass, Shape


class ChannelTables(Filter):
    """Map the samples of each channel, alpha too, by a table of its own: 256 bytes a channel."""

    levels: bytes

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, C) after a look-up for each sample."""
        tables = np.frombuffer(self.levels, np.uint8).reshape(-1, 1, 256)
        mapped = cv2.LUT(np.ascontiguousarray(pixels), cv2.merge([*tables]))
        return np.asarray(mapped, np.uint8).reshape(pixels.shape)


def _counts(pixels: Pixels, *, as_luma: bool = False) -> NDArray[np.int64]:
    """Return the counts of all levels, of each colour or of the luma, int64 (colours or 1, 256)."""
    counts = np.zeros((1 if as_luma else min(pixels.shape[2], 3), 256), np.int64)
    for piece in pieces(pixels, COUNTED):
        source = luma(piece) if as_luma else piece
        for n, total in enumerate(counts):
            # OpenCV counts in float32, which is exact for a piece, and copies no pixels.
            levels = cv2.calcHist([source], [n], None, [256], [0, 256])
            total += levels.ravel().astype(np.int64)
    return counts


def _tables(pixels: Pixels, levels: Sequence[NDArray[Any]]) -> ChannelTables:
    """Return tables for all channels of an image, from a table for all colours or one for each."""
    tables = np.clip(levels, 0, 255).astype(np.uint8)
    colours = np.broadcast_to(tables, (min(pixels.shape[2], 3), 256)).tobytes()
    return ChannelTables(levels=colours + bytes(range(256)) * (pixels.shape[2] == 4))


class Equalize(CountingFilter):
    """Spread the tones of each colour so that all of them are about equally frequent."""

    passes: ClassVar = (COUNTS[0], Pass("equalize_tables"), THROUGH_TABLES)

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables of Pillow's `ImageOps.equalize`, channel by channel; alpha is copied.

        OpenCV's equalizeHist differs from it by up to 27 levels.
        """
        return _tables(pixels, [_equalized(counts) for counts in _counts(pixels)])

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for counts and tables."""
        return counted()


class Autocontrast(CountingFilter):
    """Stretch the tones of the image over the whole range."""

    cutoff: float = number(
        0, 0, 49.9, "%", "share of the darkest and of the lightest samples that may be lost"
    )
    preserve_tone: bool = Field(
        False, description="stretch by the luma, which keeps hues, instead of channel by channel"
    )

    example: ClassVar = {"cutoff": 1}
    passes: ClassVar = (*COUNTS, Pass("autocontrast_tables"), THROUGH_TABLES)

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables of Pillow's `ImageOps.autocontrast`; alpha is copied."""
        counts = _counts(pixels, as_luma=self.preserve_tone)
        cut = self._cut(pixels.shape)
        return _tables(pixels, [_stretched(each, cut) for each in counts])

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass that counts levels or lumas, then those of the tables."""
        return (COUNTS[self.preserve_tone], *self.passes[2:])

    def device_data(self, shape: Shape) -> bytes:
        """Return the samples that may be lost at either end, and `preserve_tone`."""
        return counted(self._cut(shape), self.preserve_tone)

    def _cut(self, shape: Shape) -> int:
        """Return the samples that may be lost at either end, as Pillow counts them."""
        return int(shape[0] * shape[1] * self.cutoff // 100)


def _equalized(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the new value of each level, by the counts of all levels: int64 (256,)."""
    step = (counts.sum() - counts[counts > 0][-1]) // 255
    below = np.cumsum(counts) - counts
    return (below + step // 2) // step if step else np.arange(256)


def _stretched(counts: NDArray[np.int64], cut: int) -> NDArray[Any]:
    """Return the same of stretching, float64 (256,); `cut` samples are lost at either end."""
    low = int((np.cumsum(counts) > cut).argmax())
    high = 255 - int((np.cumsum(counts[::-1]) > cut).argmax())
    scale = 255.0 / (high - low) if high > low else 1.0
    return np.arange(256) * scale - (low * scale if high > low else 0.0)


# CLAHE, contrast limited adaptive histogram equalization, by `cv2.createCLAHE`.
#
# Source: K. Zuiderveld, "Contrast limited adaptive histogram equalization", Graphics Gems IV, 1994.
# In detail:
#
# 1. The image is cut into tiles × tiles parts of equal size; OpenCV first extends it by mirroring
#    when a side is not a multiple of `tiles`.
# 2. Each tile has a histogram of its 256 luma levels.
# 3. A histogram is clipped at clip_limit · pixels / 256 counts, at least 1: that bounds the slope
#    of the mapping, hence the contrast, and keeps noise in flat areas small.
# 4. The clipped counts are spread evenly over all levels, the remainder at equal steps.
# 5. The running sum, times 255 / pixels in float32, rounded, is the table of the tile.
# 6. A pixel is mapped by the tables of the four nearest tile centres.
# 7. The four results are blended bilinearly in float32, so no seams show; outside the outermost
#    centres the nearest tables are repeated.
# 8. Grey images are mapped directly; of colours only Y of YCrCb is mapped.
# 9. YCrCb conversions follow OpenCV in 14-bit fixed point.
# 10. The GPU has a block for each tile for the tables and a pass for all pixels; float32 steps are
#    in OpenCV's order, so the bytes are equal.


class Clahe(PieceFilter):
    """Raise the contrast tile by tile, so that each part of the image gets its own."""

    clip_limit: float = number(2, 0.1, 40, "ratio", "limit of the contrast that a tile may gain")
    tiles: int = number(8, 1, 32, "tile", "tiles along each side")

    alpha_rule: ClassVar = "point"
    border: ClassVar = "mirror"
    passes: ClassVar = (Pass("clahe_tables", own_grid=Grid(each=64)), Pass("clahe"))

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write `cv2.createCLAHE` of a grey image, or of Y of YCrCb; alpha is copied.

        Beside both arrays stands a plane, which `cv2.createCLAHE` overwrites. Colours are converted
        twice, piece by piece, which saves three bytes per pixel.
        """
        height, width, channels = pixels.shape
        equalizer = cv2.createCLAHE(self.clip_limit, (self.tiles, self.tiles))
        if channels == 1:
            equalizer.apply(pixels[:, :, 0], result[:, :, 0])
            return
        line, written = (each.reshape(1, -1, channels) for each in (pixels, result))
        plane = np.empty((1, height * width), np.uint8)
        pieces = [*bands(height * width, 1)]
        for piece in pieces:
            plane[:, piece] = _luminance(split_alpha(line[:, piece])[0])[..., 0]
        whole = plane.reshape(height, width)
        equalizer.apply(whole, whole)
        for piece in pieces:
            colour, alpha = split_alpha(line[:, piece])
            luminance = _luminance(colour)
            luminance[..., 0] = plane[:, piece]
            back = np.asarray(cv2.cvtColor(luminance, cv2.COLOR_YCrCb2RGB), np.uint8)
            written[:, piece] = join_alpha(back, alpha)

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the result, and of the plane that OpenCV may extend, by estimate."""
        height, width = (side * self.tiles for side in self._tile(shape))
        plane = shape[0] * shape[1] if shape[2] > 1 else 0
        return math.prod(shape) + plane + height * width

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a pass with a block for every tile, then a pass over all pixels."""
        return (Pass("clahe_tables", own_grid=Grid(each=self.tiles**2)), self.passes[1])

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Clahe`: tiles, tile size in pixels, clip limit in counts, scales."""
        height, width = self._tile(shape)
        clip = max(int(self.clip_limit * (width * height) / 256), 1)
        parts = np.array([width * height, width, height], np.float32)
        scales = np.array([255, 1, 1], np.float32) / parts
        return struct.pack("<4i3f", self.tiles, width, height, clip, *scales)

    def device_scratch(self, _shape: Shape) -> int:
        """Return the bytes of the tables: 256 for each tile."""
        return self.tiles**2 * 256

    def _tile(self, shape: Shape) -> tuple[int, int]:
        """Return height and width of a tile, in pixels.

        If either side is not a multiple of `tiles`, OpenCV extends both; a side that is a multiple
        grows by `tiles` pixels then.
        """
        height, width = shape[:2]
        if height % self.tiles or width % self.tiles:
            height += self.tiles - height % self.tiles
            width += self.tiles - width % self.tiles
        return height // self.tiles, width // self.tiles


def _luminance(colour: Pixels) -> Pixels:
    """Return RGB as YCrCb, uint8 (H, W, 3)."""
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(colour), cv2.COLOR_RGB2YCrCb), np.uint8)
