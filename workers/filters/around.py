"""What around.cu and whole.cu need to know: few weights, and which kernel they take."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.filters.borders import OPENCV, Border
from workers.kernels.items import Pass

AROUND_PASSES = {side: (Pass(f"around_{side}", 128, 32),) for side in (3, 5)}
"""By the side of the square that holds the weights."""


WHOLE_PASSES = (Pass("around_whole", 128, 64),)
"""Of `Whole`."""


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


@dataclass(frozen=True, slots=True)
class Whole:
    """floor((sum + added) / divisor) of 3 × 3 whole weights, as kernels/whole.cu can make it."""

    weights: NDArray[np.int64]
    added: int
    divisor: int

    @classmethod
    def of(
        cls, weights: NDArray[np.int64], added: int, divisor: int, border: Border
    ) -> "Whole | None":
        """None where the kernel is not for it: weights have a byte and borders replicate.

        It multiplies by 2**16 / divisor rounded up, which divides exactly as long as what rounding
        adds stays below one part of the divisor.
        """
        rounding = -(1 << 16) % divisor
        exact = (256 * divisor - 1) * rounding < 1 << 16
        fits = around_side(weights) == 3 and int(np.abs(weights).max()) <= 127
        fits = fits and abs(added) < 1 << 30 and divisor <= 1 << 16
        return cls(weights, added, divisor) if exact and fits and border == "replicate" else None

    def data(self, channels: int) -> bytes:
        """`struct Nine`."""
        parameters = (self.added, -(-(1 << 16) // self.divisor), 256 * self.divisor - 1)
        return struct.pack("<3i4x", *parameters) + nine_weights(self.weights, channels)


def nine_weights(weights: NDArray[np.int64], channels: int) -> bytes:
    """`weights` of `struct Nine` in kernels/nine.cuh; what of a lane follows what.

    Of row dy the matrix has in column n of half h the weights of result 4(n / 2) + 2h + n % 2;
    sample k of 32 is k - 4 on from the first result.
    """
    lane, half, part, byte = np.ogrid[:32, :2, :2, :4]
    results = lane // 4 // 2 * 4 + 2 * half + lane // 4 % 2
    away = 16 * part + 4 * (lane % 4) + byte - 4 - results
    near = (np.abs(away) == channels) | (away == 0)
    columns = np.where(near, np.sign(away) + 1, 0)
    laid = np.where(near, _squared(weights, 3, np.dtype(np.int8))[:, columns], 0)
    return laid.astype(np.int8).tobytes()


def _squared(weights: NDArray[Any], side: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Anchored as in `correlate`, with zeros around them."""
    rows, columns = weights.shape
    up, left = side // 2 - rows // 2, side // 2 - columns // 2
    room = np.zeros((side, side), kind)
    room[up : up + rows, left : left + columns] = weights
    return room
