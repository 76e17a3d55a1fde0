"""CLAHE, contrast limited adaptive histogram equalization, by `cv2.createCLAHE`.

Source: K. Zuiderveld, "Contrast limited adaptive histogram equalization", Graphics Gems IV, 1994.
In detail:

1. The image is cut into tiles × tiles parts of equal size; OpenCV first extends it by mirroring
   when a side is not a multiple of `tiles`.
2. Each tile has a histogram of its 256 luma levels.
3. A histogram is clipped at clip_limit · pixels / 256 counts, at least 1: that bounds the slope of
   the mapping, hence the contrast, and keeps noise in flat areas small.
4. The clipped counts are spread evenly over all levels, the remainder at equal steps.
5. The running sum, times 255 / pixels in float32, rounded, is the table of the tile.
6. A pixel is mapped by the tables of the four nearest tile centres.
7. The four results are blended bilinearly in float32, so no seams show; outside the outermost
   centres the nearest tables are repeated.
8. Grey images are mapped directly; of colours only Y of YCrCb is mapped.
9. YCrCb conversions follow OpenCV in 14-bit fixed point.
10. The GPU has a block for each tile for the tables and a pass for all pixels; float32 steps are
    in OpenCV's order, so the bytes are equal.
"""

import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape
from workers.kernels.launches import Grid


class Clahe(Filter):
    """Raise the contrast tile by tile, so that each part of the image gets its own."""

    name: Literal["clahe"] = "clahe"
    clip_limit: float = number(2, 0.1, 40, "ratio", "limit of the contrast that a tile may gain")
    tiles: int = number(8, 1, 32, "tile", "tiles along each side")

    example: ClassVar = {"name": "clahe"}
    alpha_rule: ClassVar = "point"
    border: ClassVar = "mirror"
    in_pieces: ClassVar = True
    passes: ClassVar = (Pass("clahe_tables", own_grid=Grid(each=64)), Pass("clahe"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.createCLAHE` of a grey image, or of Y of YCrCb: uint8 (H, W, C); alpha is
        copied.
        """
        result = np.empty(pixels.shape, np.uint8)
        self.write(np.ascontiguousarray(pixels), result)
        return result

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `apply`; both arrays are C-contiguous.

        Beside them stands a plane, which `cv2.createCLAHE` overwrites. Colours are converted twice,
        piece by piece, which saves three bytes per pixel.
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
        """Return `struct Clahe`: tiles, tile size in pixels, clip limit in counts, and float32
        scales.
        """
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
