"""Philox4x32-10, a counter-based generator (Salmon et al., 2011): integers, the same anywhere.

Number n of a seed needs none of the numbers before it.
"""

import numpy as np
from numpy.typing import NDArray

ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)

Words = NDArray[np.uint64]
"""32-bit words, in 64 bits to multiply them."""


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> list[Words]:
    """The four words of every counter; a word that all counters share may be an array of one."""
    a, b, c, d = counter
    for step in range(ROUNDS):
        keys = [np.uint64((k + step * w) & 0xFFFFFFFF) for k, w in zip(key, _WEYL, strict=True)]
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, c = (second >> _HIGH) ^ b, (first >> _HIGH) ^ d
        a ^= keys[0]
        c ^= keys[1]
        second &= _LOW
        first &= _LOW
        b, d = second, first
    return [a, b, c, d]


def halves(start: int, count: int, seed: int) -> NDArray[np.uint16]:
    """Numbers start … start + count - 1 of a seed's uniform 16-bit numbers; start in eights.

    Eight for each counter, whose lowest word counts first: words in order, lower halves first.
    """
    first = start // 8
    number = np.arange(first, first + -(-count // 8), dtype=np.uint64)
    high, zero = number >> _HIGH, np.zeros(1, np.uint64)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words = philox((number & _LOW, high if high[0] < high[-1] else high[:1], zero, zero), key)
    table = np.empty((number.size, 4), "<u4")
    for column, word in enumerate(words):
        table[:, column] = word
    return table.view("<u2").ravel()[:count]
