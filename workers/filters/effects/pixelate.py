"""The pixelate filter."""

import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape


class Pixelate(Filter):
    """Replace squares by their mean colour, for instance to make faces and plates unreadable."""

    name: Literal["pixelate"] = "pixelate"
    size: int = number(16, 2, 1000, "px", "side of a square")

    example: ClassVar = {"name": "pixelate", "size": 12}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    in_pieces: ClassVar = True
    passes: ClassVar = (Pass("pixelate"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the mean of every square in integers, half up: uint8 (H, W, C).

        Colours are weighted by their alpha. The last row and the last column of squares may be cut.
        """
        result = np.empty(pixels.shape, np.uint8)
        self.write(pixels, result)
        return result

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `apply`, row by row of squares."""
        starts = np.arange(0, pixels.shape[1], self.size)
        widths = np.diff(starts, append=pixels.shape[1])[:, None]
        for top in range(0, len(pixels), self.size):
            rows = slice(top, top + self.size)
            result[rows] = np.repeat(_means(pixels[rows], starts, widths), widths[:, 0], 0)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the side of a square as int32, in pixels."""
        return struct.pack("<i", self.size)


def _means(rows: Pixels, starts: NDArray[np.int64], widths: NDArray[np.int64]) -> Pixels:
    """Return a colour for each square of a row of squares, uint8 (squares, C)."""
    n = len(rows) * widths
    if rows.shape[2] < 4:
        total = np.asarray(cv2.reduce(rows, 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S))
        sums = np.add.reduceat(total.reshape(rows.shape[1:]), starts, dtype=np.int64)
        return np.asarray((2 * sums + n) // (2 * n), np.uint8)
    weights, weighted = _column_sums(rows)
    weight, sums = (np.add.reduceat(each, starts) for each in (weights, weighted))
    colour = (2 * sums + weight) // np.maximum(2 * weight, 1)
    opacity = (2 * weight + n) // (2 * n)
    return np.concatenate((colour * (opacity > 0), opacity), 1).astype(np.uint8)


def _column_sums(rows: Pixels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sums of alpha, and of colour times alpha, of each column: int64 (W, 1), (W, 3)."""
    width = rows.shape[1]
    weights, weighted = np.zeros((width, 1), np.int64), np.zeros((width, 3), np.int64)
    for part in bands(len(rows), 4 * width):
        alpha = rows[part, :, 3:].astype(np.int64)
        weights += alpha.sum(0)
        weighted += (rows[part, :, :3] * alpha).sum(0)
    return weights, weighted
