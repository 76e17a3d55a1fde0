"""Edges as grey: what sobel, scharr, prewitt and laplacian share. Knows no operator."""

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
"""Horizontal or vertical gradient, or the magnitude of both."""

Gradient = NDArray[np.int16]

Wide = NDArray[np.int16] | NDArray[np.int32]


EDGE_PASSES = (Pass("edges", 128, 64),)
"""Of operators of 3 × 3 weights on a GPU; their data are `edge_data`."""

WIDE_EDGE_PASSES = (Pass("edges_wide", 64, 16),)
"""Of larger ones; their data are `wide_edge_data`."""

OPERATORS = ("sobel", "scharr", "prewitt", "laplacian")
"""As edges.cu counts them."""


def edge_data(operator: str, part: int, tones: NDArray[np.uint8]) -> bytes:
    """`struct Edges` of edges.cu, and the tones, in sixteens, up to the first one that is white."""
    white = np.flatnonzero(tones == 255)
    last = int(white[0]) if white.size else len(tones) - 1
    table = bytes(tones[: last + 1].data)
    header = struct.pack("<4i", OPERATORS.index(operator), part, last, 0)
    return header + table + bytes(-len(table) % 16)


def slope_data(operator: str, axis: Axis, tones: NDArray[np.uint8]) -> bytes:
    """The same for an operator with directions."""
    return edge_data(operator, ("x", "y", "mag").index(axis), tones)


def wide_edge_data(scale: float, weights: NDArray[np.int64]) -> bytes:
    """`struct WideEdges` of edges_wide.cu."""
    room = np.zeros(7 * 7, "<i4")
    room[: weights.size] = weights.ravel()
    return struct.pack("<d2i", scale, len(weights), 0) + bytes(room.data)


def tones(longest: int, scale: float) -> NDArray[np.uint8]:
    """What a gradient of every length becomes: min(255, floor(scale · g + 0.5))."""
    edges = np.floor(np.arange(longest + 1) * scale + 0.5)
    return np.asarray(np.minimum(edges, 255), np.uint8)


def edges(pixels: Pixels, x: Gradient, y: Gradient, axis: Axis, tones: NDArray[np.uint8]) -> Pixels:
    """g = |x|, |y| or rint(sqrt(x² + y²)) through the tones, with the image's own alpha."""
    grey = np.empty(x.shape, np.uint8)
    for rows in bands(*x.shape):
        if axis == "mag":
            grey[rows] = _magnitudes(x[rows], y[rows], tones)
        else:
            grey[rows] = toned((x if axis == "x" else y)[rows], tones)
    return as_grey(grey, pixels)


def toned(gradient: Wide, tones: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The tones of |gradient|; where all from 255 on are white, it may be cut off there."""
    if (tones[255:] == 255).all():
        return _toned_bytes(cv2.convertScaleAbs(gradient), gradient.shape, tones)
    return np.take(tones, np.abs(gradient))


def _magnitudes(x: Gradient, y: Gradient, tones: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Float32 is exact up to a length of 4096: no root of a whole number is near a half there."""
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
