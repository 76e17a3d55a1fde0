"""The sobel, scharr and prewitt filters, and the part that laplacian shares with them."""

import struct
from abc import abstractmethod
from typing import ClassVar, Literal

import cv2
import numpy as np
from cv2.typing import MatLike
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey, luma
from workers.filters.arithmetic.tiling import bands
from workers.filters.base import Filter, number
from workers.kernels.items import Pass, Shape

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


class Slope(Filter):
    """Base class of operators with a horizontal and a vertical gradient."""

    axis: Axis = Field("mag", description="horizontal or vertical gradient, or its magnitude")
    scale: float = number(1, 0, 100, "ratio", "factor on the gradient")

    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES
    longest: ClassVar[int]
    """An upper bound of the length of a gradient."""

    @abstractmethod
    def gradients(self, grey: NDArray[np.uint8]) -> tuple[MatLike, MatLike]:
        """Return the horizontal and the vertical gradient of uint8 (H, W), int16."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²)) of
        the luma.

        uint8 (H, W, C) both ways; alpha is copied.
        """
        both = self.gradients(np.ascontiguousarray(luma(pixels)))
        x, y = (np.asarray(each, np.int16) for each in both)
        grey, table = np.empty(x.shape, np.uint8), tones(self.longest, self.scale)
        for rows in bands(*x.shape):
            if self.axis == "mag":
                grey[rows] = _magnitudes(x[rows], y[rows], table)
            else:
                grey[rows] = toned((x if self.axis == "x" else y)[rows], table)
        return as_grey(grey, pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, the axis and the tones (`struct Edges`)."""
        part = ("x", "y", "mag").index(self.axis)
        return edge_data(self.name, part, tones(self.longest, self.scale))


class Sobel(Slope):
    """Show edges: the gradient of the luma by the 3 × 3 Sobel operator, as grey."""

    name: Literal["sobel"] = "sobel"

    example: ClassVar = {"name": "sobel", "axis": "mag"}
    cpu_bytes_per_pixel: ClassVar = (8, 16)
    longest: ClassVar = 1442  # rint(sqrt(1020² + 1020²))

    def gradients(self, grey: NDArray[np.uint8]) -> tuple[MatLike, MatLike]:
        """Return the gradients of `cv2.Sobel` with aperture 3."""
        border = cv2.BORDER_REPLICATE
        x = cv2.Sobel(grey, cv2.CV_16S, 1, 0, borderType=border)
        return x, cv2.Sobel(grey, cv2.CV_16S, 0, 1, borderType=border)


class Scharr(Slope):
    """Show edges by the 3 × 3 Scharr operator, which favours no direction, as grey."""

    name: Literal["scharr"] = "scharr"

    example: ClassVar = {"name": "scharr", "scale": 0.25}
    cpu_bytes_per_pixel: ClassVar = (10, 18)
    longest: ClassVar = 5770  # rint(sqrt(4080² + 4080²))

    def gradients(self, grey: NDArray[np.uint8]) -> tuple[MatLike, MatLike]:
        """Return the gradients of `cv2.Scharr` (H. Scharr, dissertation, 2000)."""
        border = cv2.BORDER_REPLICATE
        x = cv2.Scharr(grey, cv2.CV_16S, 1, 0, borderType=border)
        return x, cv2.Scharr(grey, cv2.CV_16S, 0, 1, borderType=border)


_PREWITT = np.array([[-1.0, 0.0, 1.0]] * 3)
"""The horizontal operator, float64 (3, 3); the vertical one is its transpose."""


class Prewitt(Slope):
    """Show edges by the 3 × 3 Prewitt operator, as grey."""

    name: Literal["prewitt"] = "prewitt"

    example: ClassVar = {"name": "prewitt"}
    cpu_bytes_per_pixel: ClassVar = (9, 17)
    longest: ClassVar = 1082  # rint(sqrt(765² + 765²))

    def gradients(self, grey: NDArray[np.uint8]) -> tuple[MatLike, MatLike]:
        """Return the gradients of J. Prewitt, "Object enhancement and extraction", 1970."""
        border = cv2.BORDER_REPLICATE
        x = cv2.filter2D(grey, cv2.CV_16S, _PREWITT, borderType=border)
        return x, cv2.filter2D(grey, cv2.CV_16S, _PREWITT.T, borderType=border)
