"""Edges as grey: the part that sobel, scharr, prewitt and laplacian share."""

import struct
from typing import Literal

import cv2
import numpy as np
from cv2.typing import MatLike
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey
from workers.filters.arithmetic.tiling import bands
from workers.kernels.items import Pass

Axis = Literal["x", "y", "mag"]
"""The horizontal gradient, the vertical gradient, or the magnitude of both."""

Gradient = NDArray[np.int16]
"""A plane of gradients, int16 (H, W)."""

Wide = NDArray[np.int16] | NDArray[np.int32]
"""A plane of differences, which need 32 bits for the largest operators."""


EDGE_PASSES = (Pass("edges"),)
"""The GPU pass of operators with 3 × 3 weights; its data are `edge_data`."""

WIDE_EDGE_PASSES = (Pass("edges_wide"),)
"""The GPU pass of operators with up to 7 × 7 weights; its data are `wide_edge_data`."""

OPERATORS = ("sobel", "scharr", "prewitt", "laplacian")
"""The operators in the numbering of edges.cu."""


def edge_data(operator: str, part: int, tones: NDArray[np.uint8]) -> bytes:
    """Return `struct Edges` of edges.cu, then the tones up to the first white tone, padded to 16
    bytes.
    """
    white = np.flatnonzero(tones == 255)
    last = int(white[0]) if white.size else len(tones) - 1
    table = bytes(tones[: last + 1].data)
    header = struct.pack("<4i", OPERATORS.index(operator), part, last, 0)
    return header + table + bytes(-len(table) % 16)


def slope_data(operator: str, axis: Axis, tones: NDArray[np.uint8]) -> bytes:
    """Return the same for an operator with directions."""
    return edge_data(operator, ("x", "y", "mag").index(axis), tones)


def wide_edge_data(scale: float, weights: NDArray[np.int64]) -> bytes:
    """Return `struct WideEdges` of edges_wide.cu; `weights` is int64 (side, side), side at
    most 7.
    """
    room = np.zeros(7 * 7, "<i4")
    room[: weights.size] = weights.ravel()
    return struct.pack("<d2i", scale, len(weights), 0) + bytes(room.data)


def tones(longest: int, scale: float) -> NDArray[np.uint8]:
    """Return min(255, floor(scale · g + 0.5)) for each gradient length g from 0 to `longest`,
    uint8.
    """
    edges = np.floor(np.arange(longest + 1) * scale + 0.5)
    return np.asarray(np.minimum(edges, 255), np.uint8)


def edges(pixels: Pixels, x: Gradient, y: Gradient, axis: Axis, tones: NDArray[np.uint8]) -> Pixels:
    """Return the tones of |x|, |y| or rint(sqrt(x² + y²)), with the channels and alpha of
    `pixels`.
    """
    grey = np.empty(x.shape, np.uint8)
    for rows in bands(*x.shape):
        if axis == "mag":
            grey[rows] = _magnitudes(x[rows], y[rows], tones)
        else:
            grey[rows] = toned((x if axis == "x" else y)[rows], tones)
    return as_grey(grey, pixels)


def toned(gradient: Wide, tones: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the tones of |gradient|, uint8 (H, W).

    If all tones from 255 on are white, the gradient may be clipped to a byte first.
    """
    if (tones[255:] == 255).all():
        return _toned_bytes(cv2.convertScaleAbs(gradient), gradient.shape, tones)
    return np.take(tones, np.abs(gradient))


def _magnitudes(x: Gradient, y: Gradient, tones: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the tones of the gradient's length, uint8 (H, W).

    Float32 is exact up to a length of 4096: no root of an integer is close to a half there.
    """
    if (tones[255:] == 255).all():
        length = cv2.magnitude(x.astype(np.float32), y.astype(np.float32))
        return _toned_bytes(cv2.convertScaleAbs(length), x.shape, tones)
    across, down = x.astype(np.float64), y.astype(np.float64)
    return np.take(tones, np.rint(np.sqrt(across * across + down * down)).astype(np.intp))


def _toned_bytes(
    lengths: MatLike, shape: tuple[int, ...], tones: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    table = tones[:256].copy()
    return np.asarray(cv2.LUT(lengths, table), np.uint8).reshape(shape)
