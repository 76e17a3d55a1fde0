"""Edges as grey: what sobel, scharr, prewitt and laplacian share. Knows no operator."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.image import Pixels
from workers.filters.bands import bands
from workers.filters.colour import as_grey

Axis = Literal["x", "y", "mag"]
"""Horizontal or vertical gradient, or the magnitude of both."""

Gradient = NDArray[np.int16]


def tones(longest: int, scale: float) -> NDArray[np.uint8]:
    """What a gradient of every length becomes: min(255, floor(scale · g + 0.5))."""
    edges = np.floor(np.arange(longest + 1) * scale + 0.5)
    return np.asarray(np.minimum(edges, 255), np.uint8)


def edges(pixels: Pixels, x: Gradient, y: Gradient, axis: Axis, tones: NDArray[np.uint8]) -> Pixels:
    """g = |x|, |y| or rint(sqrt(x² + y²)) through the tones, with the image's own alpha."""
    grey = np.empty(x.shape, np.uint8)
    for rows in bands(*x.shape):
        grey[rows] = np.take(tones, _length(x[rows], y[rows], axis))
    return as_grey(grey, pixels)


def _length(x: Gradient, y: Gradient, axis: Axis) -> Gradient:
    if axis == "mag":
        across, down = x.astype(np.float64), y.astype(np.float64)
        return np.rint(np.sqrt(across * across + down * down)).astype(np.int16)
    return np.abs(x if axis == "x" else y)
