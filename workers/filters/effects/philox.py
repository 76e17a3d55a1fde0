"""Philox4x32-10, a counter-based random number generator in integers, the same on every device.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. Number n of a seed
does not depend on the numbers before it, so each pixel computes its own.
"""

import numpy as np
from numpy.typing import NDArray

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

    A word that all counters share may be an array of one element. `key` holds the two words of the
    seed.
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
