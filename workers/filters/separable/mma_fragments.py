"""Weights of separable filters, laid out for the matrix instructions of tensor cores.

A banded matrix turns 16 + 2 · reach samples of a line into 16 neighbouring sums. It is cut into
pieces of 16 × 32 bytes, each laid out as the 32 lanes of a warp hold operand A of PTX's
mma.m16n8k32 (PTX ISA, section "Matrix fragments for mma.m16n8k32"); headers/mma.cuh reads them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NEAR, FAR = 8, 24
"""How far a window may reach to either side, in pixels, for the two tile sizes of
separable/separable.cuh.
"""

WIDEST = 104
"""The same limit for blur/gaussian_two_pass_mma.cu, whose reach is a multiple of 16 plus 8."""

_ORDER = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
"""The order in which sums of rows lie, so that results of one product are the operand of the
next.
"""


def reach_of(radius: int) -> int | None:
    """Return the smallest of both reaches that covers a radius in pixels, or None if neither
    does.
    """
    return next((reach for reach in (NEAR, FAR) if radius <= reach), None)


def wide_reach_of(radius: int) -> int | None:
    """Return the smallest reach of gaussian_two_pass_mma.cu that covers a radius in pixels, or
    None.
    """
    return -(-(radius + 8) // 16) * 16 - 8 if radius <= WIDEST else None


def separable_weights(
    across: NDArray[np.int64], down: NDArray[np.int64], reach: int, n_bytes: Sequence[int]
) -> bytes:
    """Return `weights` of `struct Separable`: pieces for rows, then pieces for columns.

    `across` and `down` are symmetric int64 weights below 256**n_bytes. The sums of rows lie in
    `_ORDER`, as the kernel keeps rows in registers.
    """
    rows = _pieces(across, n_bytes[0], reach, np.array(_ORDER))
    return rows + _pieces(down, n_bytes[1], reach, np.arange(16))


def _pieces(
    weights: NDArray[np.int64], n_bytes: int, reach: int, order: NDArray[np.int64]
) -> bytes:
    """Return the pieces: for every 32 samples, byte of a weight and lane, 16 bytes.

    Lane 4g + t holds row g or g + 8, from sample 4t or 4t + 16 on.
    """
    assert weights.max() < 256**n_bytes
    padding = reach + 16 - len(weights) // 2
    line = np.pad(weights, padding)
    offsets = np.arange(2 * reach + 16) - order[:, None] + 16
    # Tensor cores multiply bytes, so each weight is cut into its bytes; the kernel shifts the sums
    # of each byte to their place.
    matrix = line[offsets][..., None] >> 8 * np.arange(n_bytes) & 255
    lanes = matrix.reshape(2, 8, -1, 2, 4, 4, n_bytes).transpose(2, 6, 1, 4, 3, 0, 5)
    laid: bytes = lanes.astype(np.uint8).tobytes()
    return laid
