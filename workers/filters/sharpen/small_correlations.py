"""Choose and fill the data of correlate_small_float.cu and correlate_3x3_int.cu: few weights."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.borders import OPENCV, Border
from workers.kernels.items import Pass

SMALL_FLOAT_PASSES = {side: (Pass(f"correlate_{side}x{side}_float"),) for side in (3, 5)}
"""Passes with float weights, by the side of the square that holds the weights."""

SMALL_INT_PASSES = (Pass("correlate_3x3_int"),)
"""The pass with 3 × 3 integer weights, for data of `small_int_data`."""


def square_side(weights: NDArray[Any]) -> int:
    """Return 3 or 5, the smallest square that holds the weights, or 0 if none does."""
    return next((side for side in SMALL_FLOAT_PASSES if max(weights.shape) <= side), 0)


def small_float_data(
    weights: NDArray[np.float32], offset: float, border: Border, ordered: bool = False
) -> bytes:
    """Return `struct CorrelateSmall`: weights from top to bottom, anchored as in `correlate`,
    padded with zeros.

    `offset` includes the half that rounds; `ordered` keeps Pillow's order of summation.
    """
    room = _squared(weights, square_side(weights), np.dtype("<f4"))
    header = struct.pack("<f3i", offset, [*OPENCV].index(border), ordered, 0)
    return header + room[::-1].tobytes()


# The kernel adds two samples in one 32-bit word, so a sum has 16 bits. It divides by multiplying
# with 2**16 / divisor rounded up (T. Granlund, P. Montgomery, "Division by invariant integers using
# multiplication", 1994). That is exact as long as the excess of the multiplier, times the largest
# dividend, stays below 2**16; `exact` checks it.
def small_int_data(
    weights: NDArray[np.int64], added: int, divisor: int, border: Border
) -> bytes | None:
    """Return `struct CorrelateInt` for floor((sum + added) / divisor), or None if the weights do
    not suit it.
    """
    if border != "replicate" or square_side(weights) != 3:
        return None
    least = added + 255 * int(weights.clip(max=0).sum())
    most = added + 255 * int(weights.clip(min=0).sum())
    multiplier, uncut = -(-(1 << 16) // divisor), 256 * divisor - 1
    exact = uncut * (multiplier * divisor - (1 << 16)) < 1 << 16
    if not exact or least < -(1 << 15) or max(most, uncut) >= 1 << 15:
        return None
    both = 0x10001
    header = struct.pack("<3I", (added + (1 << 15)) * both, uncut * both, multiplier)
    return header + _squared(weights, 3, np.dtype("<i4")).tobytes()


def _squared(weights: NDArray[Any], side: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the weights in the middle of a square of zeros, anchored as in `correlate`."""
    rows, columns = weights.shape
    up, left = side // 2 - rows // 2, side // 2 - columns // 2
    room = np.zeros((side, side), kind)
    room[up : up + rows, left : left + columns] = weights
    return room
