"""What correlate_small_float.cu and correlate_3x3_int.cu need to know: few weights, and which
kernel they take.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.arithmetic.borders import OPENCV, Border
from workers.kernels.items import Pass

AROUND_PASSES = {side: (Pass(f"around_{side}", 128, 32),) for side in (3, 5)}
"""By the side of the square that holds the weights."""

WHOLE_PASSES = (Pass("around_whole", 128, 32),)
"""For 3 × 3 whole weights as `whole_data` has them."""


def around_side(weights: NDArray[Any]) -> int:
    """3 or 5, or 0 for weights that do not fit a square of 5."""
    return next((side for side in AROUND_PASSES if max(weights.shape) <= side), 0)


def around_data(
    weights: NDArray[np.float32], offset: float, border: Border, ordered: bool = False
) -> bytes:
    """`struct Around`: weights from top to bottom, anchored as in `correlate`, zeros around them.

    `offset` has the half that rounds; `ordered` keeps Pillow's order of sums.
    """
    room = _squared(weights, around_side(weights), np.dtype("<f4"))
    header = struct.pack("<f3i", offset, [*OPENCV].index(border), ordered, 0)
    return header + room[::-1].tobytes()


def whole_data(
    weights: NDArray[np.int64], added: int, divisor: int, border: Border
) -> bytes | None:
    """`struct Whole` for floor((sum + added) / divisor), or None where the kernel is not for it.

    It has 16 bits for a sum and multiplies by 2**16 / divisor rounded up, which divides exactly
    as long as what rounding adds stays below one part of the divisor.
    """
    if border != "replicate" or around_side(weights) != 3:
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
    """Anchored as in `correlate`, with zeros around them."""
    rows, columns = weights.shape
    up, left = side // 2 - rows // 2, side // 2 - columns // 2
    room = np.zeros((side, side), kind)
    room[up : up + rows, left : left + columns] = weights
    return room
