"""Erosions and dilations by neighbourhoods that cost much, in tiles of bounded work.

OpenCV looks at every point of a neighbourhood for every sample: an ellipse of 201 by 201 has 31,593
of them, and 16 iterations of `blackhat` on 49 megapixels took 20 minutes in one call, which no
deadline could end. It makes one rectangle of all iterations of a rectangle, of 3,201 samples, which
took 21 s for 4 megapixels, and 1.9 one after the other. Minima and maxima are exact, so tiles and
repetitions give the same bytes.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.interruption import stop_if_late

WORK = 1 << 37
"""Samples of a tile times the points of the neighbourhood: one to two seconds."""

_RECTANGLE = 3
"""Points that a sample of the side of a rectangle is worth, which OpenCV computes along rows and
then along columns: 24 ps in place of 8."""

Extreme = Callable[..., Any]

_OPENING, _CLOSING = (cv2.erode, cv2.dilate), (cv2.dilate, cv2.erode)
_ORDERS: Mapping[str, tuple[Extreme, ...]] = {
    "erode": (cv2.erode,),
    "dilate": (cv2.dilate,),
    **{"open": _OPENING, "tophat": _OPENING, "close": _CLOSING, "blackhat": _CLOSING},
    "gradient": (cv2.dilate,),
}


def by_tiles(pixels: Pixels, op: str, kernel: NDArray[np.uint8], iterations: int) -> Pixels:
    """Return what `cv2.morphologyEx` returns of uint8 (H, W, C), in this shape.

    Raises DeadlineExceeded soon after the deadline of the image that is filtered.
    """
    source = made = np.ascontiguousarray(pixels)
    for extreme in _ORDERS[op]:
        made = _repeated(extreme, kernel, iterations, made)
    if op == "gradient":
        _subtract(made, _repeated(cv2.erode, kernel, iterations, source), into=made)
    elif op == "tophat":
        _subtract(source, made, into=made)
    elif op == "blackhat":
        _subtract(made, source, into=made)
    return made


def _subtract(larger: Pixels, smaller: Pixels, *, into: Pixels) -> None:
    rows = len(into)
    cv2.subtract(larger.reshape(rows, -1), smaller.reshape(rows, -1), into.reshape(rows, -1))


def _repeated(
    extreme: Extreme, kernel: NDArray[np.uint8], iterations: int, source: Pixels
) -> Pixels:
    for _ in range(iterations):
        source = _once(extreme, kernel, source)
    return source


def _once(extreme: Extreme, kernel: NDArray[np.uint8], source: Pixels) -> Pixels:
    """Return one erosion or dilation, each tile of it computed with the samples around it."""
    height, width, channels = source.shape
    reach = len(kernel) // 2
    points = int(np.count_nonzero(kernel))
    if points == kernel.size:
        points = _RECTANGLE * len(kernel)
    most = max(1, WORK // (channels * points))
    if height * width <= most:
        stop_if_late()
        return np.asarray(extreme(source, kernel), np.uint8).reshape(source.shape)
    rows = min(height, max(reach, math.isqrt(most)))
    columns = min(width, max(reach, most // rows))
    result = np.empty_like(source)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            stop_if_late()
            first, start = max(0, top - reach), max(0, left - reach)
            seen = source[first : top + rows + reach, start : left + columns + reach]
            made = extreme(np.ascontiguousarray(seen), kernel).reshape(seen.shape)
            tile = result[top : top + rows, left : left + columns]
            down, right = top - first, left - start
            tile[:] = made[down : down + len(tile), right : right + tile.shape[1]]
    return result
