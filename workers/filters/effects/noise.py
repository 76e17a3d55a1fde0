"""The noise filter."""

import functools
import struct
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

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


class Noise(Filter):
    """Add normally distributed grain; a seed gives the same grain on every device."""

    name: Literal["noise"] = "noise"
    amount: float = number(10, 0, 128, "level", "standard deviation of the noise")
    seed: int = number(
        0, 0, 2**53 - 1, "count", "seed of the random numbers; each seed gives other grain"
    )

    example: ClassVar = {"name": "noise", "amount": 20, "seed": 7}
    alpha_rule: ClassVar = "point"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    in_pieces: ClassVar = True
    passes: ClassVar = (Pass("noise"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return clip(c + q[u]) for every colour sample c, uint8 (H, W, C); alpha is copied.

        u is number n of Philox's 16-bit numbers for colour sample n, and q holds the 65,536
        quantiles of the normal distribution times `amount`, rounded half up: the inversion method
        (L. Devroye, "Non-uniform random variate generation", 1986, II.2), with a table in place of
        a formula.
        """
        result = np.empty(pixels.shape, np.uint8)
        self.write(np.ascontiguousarray(pixels), result)
        return result

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `apply` piece by piece; both arrays are C-contiguous."""
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
    """Return the quantiles of the standard normal distribution at (n + 0.5) / 65,536, float64
    (65536,).
    """
    inverse = NormalDist().inv_cdf
    lower = np.array([inverse((n + 0.5) / 65536) for n in range(32768)])
    return np.concatenate((lower, -lower[::-1]))
