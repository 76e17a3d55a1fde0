"""The vignette filter."""

import functools
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, repeated, split_alpha
from workers.filters.arithmetic.tiling import STRIP_SAMPLES, bands
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

BITS = 16
"""Bits of a brightness; the squared distance from the centre has as many."""

DISTANCE_BITS = 30
"""Bits of the fraction of a squared distance before it is cut to `BITS`."""


class Vignette(Filter):
    """Darken the corners, as a simple lens does."""

    name: Literal["vignette"] = "vignette"
    amount: float = number(0.5, 0, 1, "ratio", "share of light that the corners lose")
    radius: float = number(
        0.4, 0, 0.99, "ratio", "distance where darkening begins: 0 is the centre, 1 a corner"
    )

    example: ClassVar = {"name": "vignette", "amount": 0.8}
    alpha_rule: ClassVar = "point"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    in_pieces: ClassVar = True
    passes: ClassVar = (Pass("vignette_light"), Pass("vignette"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return (c · light + 2**15) >> 16 for every colour sample c, uint8 (H, W, C).

        Light is 1 - amount · s(t) with s(t) = 3t² - 2t³ (smoothstep) and t from 0 at the radius to
        1 at a corner. It is looked up by the squared distance in 16 bits, which needs no square
        root per pixel.
        """
        result = np.empty(pixels.shape, np.uint8)
        self.write(pixels, result)
        return result

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `apply` some rows at a time, each with the row that mirrors it."""
        height, width, channels = pixels.shape
        colours = min(channels, 3)
        down, across = _squares(height), _squares(width)[: (width + 1) // 2]
        mirror = cv2.BORDER_REFLECT_101 if width % 2 else cv2.BORDER_REFLECT
        light = _light(self.amount, self.radius)
        for rows in bands((height + 1) // 2, width * colours, STRIP_SAMPLES):
            distance = (down[rows, None] + across) >> (DISTANCE_BITS - BITS)
            half = np.take(light, distance)
            whole = cv2.copyMakeBorder(half, 0, 0, 0, width // 2, mirror)
            lights = repeated(np.asarray(whole, np.float32), colours)
            _write_lit(pixels[rows], lights, result[rows])
            # The middle row of an odd number mirrors itself, and is not lit twice.
            mirrored = slice(max(rows.stop, height - rows.stop), height - rows.start)
            if count := mirrored.stop - mirrored.start:
                _write_lit(pixels[mirrored], lights[:count][::-1], result[mirrored])

    def device_data(self, _shape: Shape) -> bytes:
        """Return amount and radius as float64; the device makes the same table with the same
        rounding.
        """
        return struct.pack("<2d", self.amount, self.radius)

    def device_scratch(self, _shape: Shape) -> int:
        """Return the bytes of the table of light: 65,537 × uint16."""
        return 2 * ((1 << BITS) + 1)


@functools.lru_cache(8)
def _light(amount: float, radius: float) -> NDArray[np.float32]:
    """Return the light for every squared distance from 0 to 1 in units of 2**-16, float32 (65537,).

    The lights are `nudged`.
    """
    distance = np.sqrt(np.arange((1 << BITS) + 1) / (1 << BITS))
    t = np.clip((distance - radius) / (1 - radius), 0, 1)
    light = 1 - amount * t * t * (3 - 2 * t)
    return nudged((np.floor(light * (1 << BITS) + 0.5) * 2.0**-BITS).astype(np.float32))


def _squares(length: int) -> NDArray[np.uint32]:
    """Return the part of the squared distance that a coordinate adds, uint32 in units of 2**-30.

    It is a half in the middle of an outermost row or column, so a corner is at distance 1.
    """
    offset = (2 * np.arange(length) + 1 - length) / max(length - 1, 1)
    return np.floor(offset * offset * (1 << (DISTANCE_BITS - 1)) + 0.5).astype(np.uint32)


# OpenCV rounds c · light half to even, and the specification rounds half up. Float32 holds all
# products of a level (8 bits) and a light (16 bits) exactly. A level has at most seven factors of
# 2, so only multiples of 2**-8 can give ties, and all other products of such a light are at least
# 2**-8 away from a tie. Making such lights larger by a relative 2**-23 moves ties above the half
# and brings no other product to one.
def nudged(light: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge some lights, float32 multiples of 2**-16 up to 1, so that no product is a tie."""
    return np.where(light * 256 % 1 == 0, light * np.float32(1 + 2.0**-23), light)


def _write_lit(pixels: Pixels, lights: NDArray[np.float32], result: Pixels) -> None:
    """Write pixels under their lights into `result`, which may be `pixels`; alpha is copied."""
    colour, alpha = split_alpha(pixels)
    if alpha is None:
        lit(colour, lights, result)
    else:
        made = np.empty(colour.shape, np.uint8)
        lit(colour, lights, made)
        result[:] = join_alpha(made, alpha)


def lit(colour: Pixels, lights: NDArray[np.float32], result: Pixels) -> None:
    """Write c · light, rounded half up, into `result`; `lights` are `nudged`, of the same shape."""
    samples = colour.astype(np.float32)
    samples *= lights
    cv2.convertScaleAbs(samples, result)
