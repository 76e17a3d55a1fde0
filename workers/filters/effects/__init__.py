"""Filters for visual effects: mosaics, vignettes, noise."""

import functools
import struct
from statistics import NormalDist
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, repeated, split_alpha
from workers.filters.arithmetic.sums import STRIP_SAMPLES, bands
from workers.filters.base import PieceFilter, number
from workers.kernels.items import Pass, Shape


class Pixelate(PieceFilter):
    """Replace squares by their mean colour, for instance to make faces and plates unreadable."""

    size: int = number(16, 2, 1000, "px", "side of a square")

    example: ClassVar = {"size": 12}
    alpha_rule: ClassVar = "premul"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    passes: ClassVar = (Pass("pixelate"),)
    packed: ClassVar = ("<i", "size")

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the mean of every square in integers, half up, row by row of squares.

        Colours are weighted by their alpha. The last row and the last column of squares may be cut.
        """
        starts = np.arange(0, pixels.shape[1], self.size)
        widths = np.diff(starts, append=pixels.shape[1])[:, None]
        for top in range(0, len(pixels), self.size):
            rows = slice(top, top + self.size)
            result[rows] = np.repeat(_means(pixels[rows], starts, widths), widths[:, 0], 0)


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


LIGHT_BITS = 16
"""Bits of a brightness; the squared distance from the centre has as many."""

DISTANCE_BITS = 30
"""Bits of the fraction of a squared distance before it is cut to `LIGHT_BITS`."""


class Vignette(PieceFilter):
    """Darken the corners, as a simple lens does."""

    amount: float = number(0.5, 0, 1, "ratio", "share of light that the corners lose")
    radius: float = number(
        0.4, 0, 0.99, "ratio", "distance where darkening begins: 0 is the centre, 1 a corner"
    )

    example: ClassVar = {"amount": 0.8}
    alpha_rule: ClassVar = "point"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    passes: ClassVar = (Pass("vignette_light"), Pass("vignette"))
    packed: ClassVar = ("<2d", "amount", "radius")

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write (c · light + 2**15) >> 16 for every colour sample c.

        Light is 1 - amount · s(t) with s(t) = 3t² - 2t³ (smoothstep) and t from 0 at the radius to
        1 at a corner. It is looked up by the squared distance in 16 bits, which needs no square
        root per pixel. Some rows are written at a time, each with the row that mirrors it.
        """
        height, width, channels = pixels.shape
        colours = min(channels, 3)
        down, across = _squares(height), _squares(width)[: (width + 1) // 2]
        mirror = cv2.BORDER_REFLECT_101 if width % 2 else cv2.BORDER_REFLECT
        light = _light(self.amount, self.radius)
        for rows in bands((height + 1) // 2, width * colours, STRIP_SAMPLES):
            distance = (down[rows, None] + across) >> (DISTANCE_BITS - LIGHT_BITS)
            half = np.take(light, distance)
            whole = cv2.copyMakeBorder(half, 0, 0, 0, width // 2, mirror)
            lights = repeated(np.asarray(whole, np.float32), colours)
            _write_lit(pixels[rows], lights, result[rows])
            # The middle row of an odd number mirrors itself, and is not lit twice.
            mirrored = slice(max(rows.stop, height - rows.stop), height - rows.start)
            if count := mirrored.stop - mirrored.start:
                _write_lit(pixels[mirrored], lights[:count][::-1], result[mirrored])

    def device_scratch(self, _shape: Shape) -> int:
        """Return the bytes of the table of light: 65,537 × uint16."""
        return 2 * ((1 << LIGHT_BITS) + 1)


@functools.lru_cache(8)
def _light(amount: float, radius: float) -> NDArray[np.float32]:
    """Return the light for every squared distance from 0 to 1 in units of 2**-16, float32 (65537,).

    The lights are `nudged`.
    """
    distance = np.sqrt(np.arange((1 << LIGHT_BITS) + 1) / (1 << LIGHT_BITS))
    t = np.clip((distance - radius) / (1 - radius), 0, 1)
    light = 1 - amount * t * t * (3 - 2 * t)
    return nudged((np.floor(light * (1 << LIGHT_BITS) + 0.5) * 2.0**-LIGHT_BITS).astype(np.float32))


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


# Philox4x32-10, a counter-based random number generator in integers, the same on every device.
# Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. Number n of a
# seed does not depend on the numbers before it, so each pixel computes its own.

ROUNDS = 10
"""Rounds of the generator; ten is the default of the paper."""
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)

Words = NDArray[np.uint64]
"""32-bit words, kept in 64 bits so that products fit."""


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> list[Words]:
    """Return the four output words of every counter, uint64 (n,) each, below 2**32.

    A word that all counters share may be an array of a single element. `key` holds the two words of
    the seed.
    """
    a, b, c, d = counter
    for step in range(ROUNDS):
        # The key of each round is the seed plus a multiple of the golden ratio and of sqrt(3) - 1
        # as 32-bit fractions: a Weyl sequence, so that no round repeats a key.
        keys = [np.uint64((k + step * w) & 0xFFFFFFFF) for k, w in zip(key, _WEYL, strict=True)]
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        # Each round multiplies two of the words. The high half of a product, which depends on all
        # bits of its factor, is mixed into another word, and the low half, from which the factor
        # can be computed again, replaces it. Hence a round is a bijection, and different counters
        # never give the same output.
        a, c = (second >> _HIGH) ^ b, (first >> _HIGH) ^ d
        a ^= keys[0]
        c ^= keys[1]
        second &= _LOW
        first &= _LOW
        b, d = second, first
    return [a, b, c, d]


def halves(start: int, count: int, seed: int) -> NDArray[np.uint16]:
    """Return the uniform 16-bit numbers start … start + count - 1 of a seed, uint16 (count,).

    `start` is a multiple of 8. Every counter gives eight numbers: its four words in order, the
    lower half of each first; the lowest word of the counter counts up.
    """
    first = start // 8
    number = np.arange(first, first + -(-count // 8), dtype=np.uint64)
    high, zero = number >> _HIGH, np.zeros(1, np.uint64)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    # The upper word changes once in 2**32 counters. Where it does not change, an array of one
    # element leaves most of its arithmetic to broadcasting.
    words = philox((number & _LOW, high if high[0] < high[-1] else high[:1], zero, zero), key)
    table = np.empty((number.size, 4), "<u4")
    for column, word in enumerate(words):
        table[:, column] = word
    return table.view("<u2").ravel()[:count]


PIECE = 40 << 10
"""Pixels that are computed at a time. A multiple of 8, as `halves` requires of their samples."""

QUANTILE_GROUP = 64
"""Numbers in a group of a kernel's table whose quantiles differ by at most one level."""


class Noise(PieceFilter):
    """Add normally distributed grain; a seed gives the same grain on every device."""

    amount: float = number(10, 0, 128, "level", "standard deviation of the noise")
    seed: int = number(
        0, 0, 2**53 - 1, "count", "seed of the random numbers; each seed gives other grain"
    )

    example: ClassVar = {"amount": 20, "seed": 7}
    alpha_rule: ClassVar = "point"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    passes: ClassVar = (Pass("noise"),)

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write clip(c + q[u]) for every colour sample c; alpha is copied.

        u is number n of Philox's 16-bit numbers for colour sample n, and q holds the 65,536
        quantiles of the normal distribution times `amount`, rounded half up: the inversion method
        (L. Devroye, "Non-uniform random variate generation", 1986, II.2), with a table in place of
        a formula.
        """
        grain, channels = self._grain(), pixels.shape[2]
        line, written = (each.reshape(1, -1, channels) for each in (pixels, result))
        for start in range(0, line.shape[1], PIECE):
            piece = slice(start, start + PIECE)
            colour, alpha = split_alpha(line[:, piece])
            first = start * colour.shape[2]
            noisy = np.take(grain, halves(first, colour.size, self.seed)).reshape(colour.shape)
            noisy += colour
            whole = np.clip(noisy, 0, 255, out=noisy).astype(np.uint8)
            written[:, piece] = join_alpha(whole, alpha)

    # The table of a kernel has to fit shared memory, so it is packed. In the middle of the
    # distribution 64 neighbouring numbers have one quantile or two adjacent ones: one entry holds
    # the lower quantile times 64, plus the number of entries that have the next one. In both tails
    # quantiles are farther apart, so every number has an entry of its own there; `tail` is the
    # number of such groups.
    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Noise`: the seed, and the quantiles as a table of uint16."""
        grain = np.clip(self._grain(), -256, 255).astype(np.int32) + 256
        groups = grain.reshape(-1, QUANTILE_GROUP)
        often = np.flatnonzero(groups[:, -1] > groups[:, 0] + 1)
        tail = int(np.minimum(often, len(groups) - 1 - often).max(initial=-1)) + 1
        more = np.count_nonzero(groups > groups[:, :1], axis=1)
        middle = (64 * groups[:, 0] + more)[tail : len(groups) - tail]
        end = tail * QUANTILE_GROUP
        parts = (64 * grain[:end], middle, 64 * grain[len(grain) - end :])
        quantiles = np.concatenate(parts).astype("<u2")
        header = struct.pack("<QI4x", self.seed, tail)
        return header + quantiles.tobytes() + bytes(-quantiles.nbytes % 16)

    def _grain(self) -> NDArray[np.int16]:
        """Return the value that is added for every 16-bit number, int16 (65536,), in levels."""
        return np.floor(_quantiles() * self.amount + 0.5).astype(np.int16)


@functools.cache
def _quantiles() -> NDArray[np.float64]:
    """Return the quantiles of the normal distribution at (n + 0.5) / 65,536, float64 (65536,)."""
    inverse = NormalDist().inv_cdf
    lower = np.array([inverse((n + 0.5) / 65536) for n in range(32768)])
    return np.concatenate((lower, -lower[::-1]))
