"""The motion_blur filter."""

import struct
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.correlate import correlated, correlated_bytes
from workers.filters.arithmetic.sums import filtered
from workers.filters.base import Filter, number
from workers.filters.separable.gaussian import half_up
from workers.kernels.items import Pass, Shape

BITS = 15


class MotionBlur(Filter):
    """Blur along a line, as if the camera had moved."""

    name: Literal["motion_blur"] = "motion_blur"
    length: int = number(15, 3, 255, "px", "length of the line")
    angle: float = number(
        0, -180, 180, "degree", "angle of the line, counterclockwise; 0 is horizontal, 90 vertical"
    )

    example: ClassVar = {"name": "motion_blur", "length": 21, "angle": 30}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (7, 24)
    border: ClassVar = "replicate"
    passes: ClassVar = (Pass("motion_blur"),)

    # Weights have only 15 bits because sums over bytes are then exact in float32, and sums over
    # colour times alpha in 32 bits. Rounding the weights moves no sample by more than 1.01 levels,
    # and that only where the neighbours alternate between black and white exactly as the rounding
    # errors do.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return sums with integer weights in units of 2**-15, rounded half up, uint8 (H, W, C).

        This definition is our own.
        """
        weights = self.fixed()
        if pixels.shape[2] < 4:
            source = np.ascontiguousarray(pixels)
            return correlated_bytes(source, weights, "replicate", BITS, 1 << (BITS - 1))
        sums = partial(correlated, weights=weights, border="replicate")
        return filtered(pixels, sums, partial(half_up, bits=BITS))

    @property
    def rows_around(self) -> int:
        """Return half of the rows of the kernel."""
        return len(self.fixed()) // 2

    @property
    def columns_around(self) -> int:
        """Return half of the columns of the kernel."""
        return len(self.fixed()[0]) // 2

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Motion`: the weights that are not 0, each with its offset in pixels."""
        weights = self.fixed()
        rows, columns = np.nonzero(weights)
        taps = np.zeros(len(rows), [("x", "<i2"), ("y", "<i2"), ("weight", "<i4")])
        taps["x"], taps["y"] = columns - weights.shape[1] // 2, rows - weights.shape[0] // 2
        taps["weight"] = weights[rows, columns]
        return struct.pack("<4i", len(taps), 0, 0, 0) + bytes(taps.data)

    def fixed(self) -> NDArray[np.int64]:
        """Return max(0, 1 - d) · clip((length + 1) / 2 - t, 0, 1) as int64 weights that sum to
        2**15.

        d is the distance of a pixel from the line, and t its distance from the middle along the
        line, in pixels. This is a line of pixels turned with bilinear interpolation, as kornia's
        `get_motion_kernel2d` makes it. Weights are rounded by largest remainder, in symmetric
        pairs. The shape is (rows, columns), both odd.
        """
        offsets = np.arange(-(self.length // 2), self.length // 2 + 1)
        cos, sin = np.cos(np.radians(self.angle)), np.sin(np.radians(self.angle))
        along = np.abs(offsets * cos - offsets[:, None] * sin)
        away = np.abs(offsets * sin + offsets[:, None] * cos)
        line = np.maximum(0, 1 - away) * np.clip((self.length + 1) / 2 - along, 0, 1)
        weights: NDArray[np.int64] = _rounded(line.ravel()).reshape(line.shape)
        rows, columns = (np.flatnonzero(weights.any(axis)) for axis in (1, 0))
        return weights[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _rounded(line: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round symmetric weights by largest remainder to int64 that sum to 2**15, in pairs.

    The middle weight takes the odd unit.
    """
    exact = line * ((1 << BITS) / line.sum())
    weights: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    middle = len(line) // 2
    pairs, odd = divmod((1 << BITS) - int(weights.sum()), 2)
    largest = np.argsort(weights[:middle] - exact[:middle], kind="stable")[:pairs]
    weights[largest] += 1
    weights[-1 - largest] += 1
    weights[middle] += odd
    return weights
