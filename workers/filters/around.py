"""What around.cu needs to know: small weights in single precision, and which kernel they take."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.borders import OPENCV, Border
from workers.kernels.items import Pass

AROUND_PASSES = {side: (Pass(f"around_{side}", 128, 32),) for side in (3, 5)}
"""By the side of the square that holds the weights."""


def around_side(weights: NDArray[Any]) -> int:
    """3 or 5, or 0 for weights that do not fit a square of 5."""
    return next((side for side in AROUND_PASSES if max(weights.shape) <= side), 0)


def around_data(
    weights: NDArray[np.float32], offset: float, border: Border, ordered: bool = False
) -> bytes:
    """`struct Around`: weights from top to bottom, anchored as in `correlate`, zeros around them.

    `offset` has the half that rounds; `ordered` keeps Pillow's order of sums.
    """
    side = around_side(weights)
    rows, columns = weights.shape
    up, left = side // 2 - rows // 2, side // 2 - columns // 2
    room = np.zeros((side, side), "<f4")
    room[up : up + rows, left : left + columns] = weights
    header = struct.pack("<f3i", offset, [*OPENCV].index(border), ordered, 0)
    return header + room[::-1].tobytes()
