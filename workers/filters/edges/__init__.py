"""Filters that show edges."""

import functools
import math
import struct
from typing import ClassVar, Literal

import cv2
import numpy as np
from cv2.typing import MatLike
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import as_grey, luma, repeated
from workers.filters.arithmetic.sums import bands
from workers.filters.base import Filter, Odd, number, odd
from workers.filters.blur import GaussianBlur
from workers.filters.separable import FAR, NEAR, blurred_levels, device_taps, reach, tile_taps
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
    """Return `struct Edges` of edges.cu, then the tones up to the first white tone, padded."""
    white = np.flatnonzero(tones == 255)
    last = int(white[0]) if white.size else len(tones) - 1
    table = bytes(tones[: last + 1].data)
    header = struct.pack("<4i", OPERATORS.index(operator), part, last, 0)
    return header + table + bytes(-len(table) % 16)


def wide_edge_data(scale: float, weights: NDArray[np.int64]) -> bytes:
    """Return `struct WideEdges` of edges_wide.cu; `weights` is int64 (side, side), at most 7."""
    room = np.zeros(7 * 7, "<i4")
    room[: weights.size] = weights.ravel()
    return struct.pack("<d2i", scale, len(weights), 0) + bytes(room.data)


def tones(longest: int, scale: float) -> NDArray[np.uint8]:
    """Return min(255, floor(scale · g + 0.5)) for each length g from 0 to `longest`, uint8."""
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


_SLOPE = np.array([-1.0, 0.0, 1.0])


class Slope(Filter):
    """Base class of operators with a horizontal and a vertical gradient."""

    axis: Axis = Field("mag", description="horizontal or vertical gradient, or its magnitude")
    scale: float = number(1, 0, 100, "ratio", "factor on the gradient")

    alpha_rule: ClassVar = "keep"
    row_reach: ClassVar = 1
    border: ClassVar = "replicate"
    passes: ClassVar = EDGE_PASSES
    smoothing: ClassVar[tuple[int, int, int]]
    """The weights across the direction of a gradient, along which the weights are -1, 0, 1."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · g + 0.5)) with g = |gx|, |gy| or rint(sqrt(gx² + gy²)) of
        the luma.

        uint8 (H, W, C) both ways; alpha is copied.
        """
        light, smoothing = np.ascontiguousarray(luma(pixels)), np.array(self.smoothing, np.float64)
        x, y = (
            np.asarray(
                cv2.sepFilter2D(light, cv2.CV_16S, across, down, borderType=cv2.BORDER_REPLICATE),
                np.int16,
            )
            for across, down in ((_SLOPE, smoothing), (smoothing, _SLOPE))
        )
        grey, table = np.empty(light.shape, np.uint8), self._tones()
        for rows in bands(*x.shape):
            if self.axis == "mag":
                grey[rows] = _magnitudes(x[rows], y[rows], table)
            else:
                grey[rows] = toned((x if self.axis == "x" else y)[rows], table)
        return as_grey(grey, pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, the axis and the tones (`struct Edges`)."""
        part = ("x", "y", "mag").index(self.axis)
        return edge_data(self.name, part, self._tones())

    def _tones(self) -> NDArray[np.uint8]:
        """Return the tones up to the longest gradient, that of a corner between black and white."""
        return tones(round(255 * sum(self.smoothing) * math.sqrt(2)), self.scale)


class Sobel(Slope):
    """Show edges: the gradient of the luma by the 3 × 3 Sobel operator, as grey."""

    example: ClassVar = {"axis": "mag"}
    cpu_bytes_per_pixel: ClassVar = (8, 16)
    smoothing: ClassVar = (1, 2, 1)


class Scharr(Slope):
    """Show edges by the 3 × 3 Scharr operator, which favours no direction, as grey."""

    example: ClassVar = {"scale": 0.25}
    cpu_bytes_per_pixel: ClassVar = (10, 18)
    smoothing: ClassVar = (3, 10, 3)  # H. Scharr, dissertation, 2000


class Prewitt(Slope):
    """Show edges by the 3 × 3 Prewitt operator, as grey."""

    cpu_bytes_per_pixel: ClassVar = (9, 17)
    smoothing: ClassVar = (1, 1, 1)  # J. Prewitt, "Object enhancement and extraction", 1970


class Laplacian(Filter):
    """Show edges and spots: the difference of the luma from its surroundings, as grey."""

    ksize: Odd = odd(3, 1, 7, "side of the operator, odd; 1 stands for four neighbours")
    scale: float = number(1, 0, 100, "ratio", "factor on the difference, which grows with ksize")

    example: ClassVar = {"ksize": 3}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: self.ksize // 2 + 1
    passes: ClassVar = EDGE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, floor(scale · |l| + 0.5)), with l = `cv2.Laplacian` of the luma in
        integers.

        uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        source, border = np.ascontiguousarray(luma(pixels)), cv2.BORDER_REPLICATE
        narrow = _longest(self.ksize) < 1 << 15
        depth = cv2.CV_16S if narrow else cv2.CV_32F
        found = cv2.Laplacian(source, depth, ksize=self.ksize, borderType=border)
        differences: Wide = np.asarray(found, np.int16) if narrow else np.asarray(found, np.int32)
        grey, table = np.empty_like(source), tones(_longest(self.ksize), self.scale)
        for rows in bands(*source.shape):
            grey[rows] = toned(differences[rows], table)
        return as_grey(grey, pixels)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass of 3 × 3 weights for the sides 1 and 3, else the pass of larger sides."""
        return EDGE_PASSES if self.ksize <= 3 else WIDE_EDGE_PASSES

    def device_data(self, _shape: Shape) -> bytes:
        """Return the operator, named by its corner weight if it is 3 × 3, and the tones."""
        weights = _operator(self.ksize)
        if self.ksize > 3:
            return wide_edge_data(self.scale, weights)
        return edge_data(self.name, int(weights[0, 0]), tones(_longest(self.ksize), self.scale))


@functools.cache
def _operator(ksize: int) -> NDArray[np.int64]:
    """Return the weights of `cv2.Laplacian`, int64 (side, side), side at least 3."""
    second, smooth = (np.asarray(each) for each in cv2.getDerivKernels(2, 0, ksize))
    across = second @ (smooth if ksize > 1 else np.array([[0], [1], [0]])).T
    return np.asarray(np.rint(across + across.T), np.int64)


def _longest(ksize: int) -> int:
    """Return the largest absolute difference that the operator can give on bytes."""
    weights = _operator(ksize)
    return 255 * int(weights[weights > 0].sum())


SCALE_BITS = 16
"""Bits of the fraction of `scale`."""


class Dog(Filter):
    """Show edges and spots of a size between two blurs, as grey: the difference of Gaussians."""

    sigma1: float = number(1, 0.1, 100, "px", "standard deviation of the first blur")
    sigma2: float = number(1.6, 0.1, 100, "px", "standard deviation of the second blur")
    scale: float = number(4, 0, 100, "ratio", "factor on the difference")

    example: ClassVar = {"sigma1": 1, "sigma2": 2, "scale": 8}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: int(4 * max(self.sigma1, self.sigma2) + 0.5)
    passes: ClassVar = (Pass("grey_plane"), *[Pass("dog_rows")] * 2, Pass("dog_columns"))
    tolerance: ClassVar = "within 1, for each unit of scale, of float64"

    # The blurs have the 24 fractional bits of their sums and scale has 16, so a product has 40 of
    # them and 8 bits before the point if it is below 256: float64 holds these 48 bits exactly.
    # Larger products may be rounded, but never to a value below 256, and they become 255.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return min(255, scale · |G1 - G2|) of the luma, half up, with the alpha of the image."""
        plane, scale = luma(pixels)[..., None], self._fixed_scale() / (1 << SCALE_BITS)
        grey = np.empty(plane.shape, np.uint8)
        both = (blurred_levels(plane, sigma, sigma) for sigma in (self.sigma1, self.sigma2))
        for (place, first), (_, second) in zip(*both, strict=True):
            first -= second
            np.abs(first, out=first)
            first *= scale
            first += 0.5
            grey[place] = np.minimum(first, 255, out=first)
        return as_grey(grey[..., 0], pixels)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Dog`: the scale in Q16, and the weights of both blurs."""
        sigmas = (self.sigma1, self.sigma2)
        first, second = (device_taps(sigma, sigma) for sigma in sigmas)
        return struct.pack("<Ii8x", self._fixed_scale(), len(first)) + first + second

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of the luma and of the row sums of both blurs, in units of 256."""
        height, width, _ = shape
        parts = (height * width + 4, *[2 * (width + 3) * height] * 2)
        return sum(-(-part // 256) * 256 for part in parts)

    def _fixed_scale(self) -> int:
        return int(self.scale * (1 << SCALE_BITS) + 0.5)


_SMALLEST_SIGMA = 0.1

_BLURS = (Pass("grey_plane"), Pass("canny_blur_rows"), Pass("canny_blur_columns"))
_IN_TILES = {NEAR: Pass("canny_blur_reach_8"), FAR: Pass("canny_blur_reach_24")}
_EDGES = (Pass("canny_edges"), Pass("canny_join_tiles"), Pass("canny_paint"))


class Canny(Filter):
    """Draw thin white lines along edges."""

    low: float = number(100, 0, 2040, "level", "gradient from which an edge continues")
    high: float = number(200, 0, 2040, "level", "gradient from which an edge starts")
    sigma: float = number(
        0, 0, 100, "px", "standard deviation of the gaussian_blur before; no blur below 0.1"
    )

    example: ClassVar = {"low": 60, "high": 160, "sigma": 1.4}
    alpha_rule: ClassVar = "drop"
    cpu_bytes_per_pixel: ClassVar = (9, 9)
    border: ClassVar = "replicate"
    result_shape: ClassVar = "no alpha"
    passes: ClassVar = (*_BLURS, *_IN_TILES.values(), *_EDGES)

    # The steps, which the GPU repeats exactly in integers:
    # 1. Blur the luma, if sigma is at least 0.1, by the fixed-point Gaussian.
    # 2. Take Sobel gradients x and y; the strength is |x| + |y| (L1).
    # 3. Keep a pixel only if its strength is a maximum along the gradient's direction, which is
    #    rounded to one of four by comparing |y| with |x| · tan 22.5° in 15-bit fixed point, as
    #    OpenCV does.
    # 4. A kept pixel above `high` starts an edge; one above `low` continues it.
    # 5. An edge is a component, connected over 8 neighbours, of pixels above `low` that contains
    #    one above `high`. OpenCV follows edges with a stack; the GPU joins components by union-find
    #    (headers/union_find.cuh). Both find the same set, because it does not depend on the order.
    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.Canny` of the luma, aperture 3, L1 gradient: uint8 (H, W, 1 or 3), 0 or 255.

        Source: J. Canny, "A computational approach to edge detection", 1986.
        """
        grey = luma(pixels)[..., None]
        if self._blurs:
            grey = GaussianBlur(sigma=self.sigma, sigma_y=None).apply(grey)
        edges = cv2.Canny(np.ascontiguousarray(grey[..., 0]), self.low, self.high)
        return repeated(np.asarray(edges, np.uint8), min(pixels.shape[2], 3))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return one pass of blur, or three for large windows, or that of the luma; then edges."""
        if not self._blurs:
            return (_BLURS[0], *_EDGES)
        far = reach(self.sigma, self.sigma)
        return (*_BLURS, *_EDGES) if far is None else (_IN_TILES[far], *_EDGES)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Canny`: the thresholds as integers, then the weights of the blur.

        OpenCV floors thresholds, and swaps them if `low` is larger.
        """
        low, high = sorted((math.floor(self.low), math.floor(self.high)))
        header = struct.pack("<3i20x", low, high, self._blurs)
        if not self._blurs:
            return header
        if reach(self.sigma, self.sigma):
            return header + tile_taps(self.sigma, self.sigma)
        return header + device_taps(self.sigma, self.sigma)

    @property
    def _blurs(self) -> bool:
        return self.sigma >= _SMALLEST_SIGMA
