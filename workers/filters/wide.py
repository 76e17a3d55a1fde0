"""Filters of 16-bit samples, uint16 (H, W, C): the CPU computes them with the same bytes anywhere.

Parameters keep their meaning: a level of 0 to 255 stands for 257 times as much, so that black and
white stay black and white. Each channel is filtered by itself, which bounds temporary arrays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.errors import InvalidParameter
from workers.filters.base import Filter
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.geometry import Crop, Flip, Resize, Rotate90, Trim
from workers.filters.separable import MIDDLE_BITS, ROW_BITS, fixed_point_passes, half_up, taps
from workers.filters.tone import CurveFilter, Gamma, Invert, Levels
from workers.kernels.items import Shape

Wide = NDArray[np.uint16]

_WHITE = 65535
"""The largest sample."""


def memory(filters: Sequence[Filter], shape: Shape) -> int:
    """Return the most bytes that the filters take at a time, by estimate.

    Raises InvalidParameter for a filter that has no definition for these 16-bit channels.
    """
    most = 0
    for each in filters:
        if type(each) not in _DEFINED:
            names = ", ".join(defined.name for defined in _DEFINED)
            raise InvalidParameter(f"{each.name} has no definition for 16 bits; {names} have")
        if shape[2] == 4 and each.alpha_rule == "premul":
            raise InvalidParameter(f"{each.name} takes 16-bit images without alpha only")
        samples, shape = math.prod(shape), each.shape_after(shape)
        larger = max(samples, math.prod(shape)) // shape[2]  # of a channel, in some float32 arrays
        most = max(most, 2 * samples + 2 * math.prod(shape) + 14 * larger)
    return most


def apply(filter_: Filter, pixels: Wide) -> Wide:
    """Return the filtered image, uint16 (h, w, C); `memory` has accepted the filter.

    A filter that measures pixels measures their upper 8 bits.
    """
    if filter_.measures:
        filter_ = filter_.measured((pixels >> 8).astype(np.uint8))
    result = np.empty(filter_.shape_after(pixels.shape), np.uint16)
    for channel in range(pixels.shape[2]):
        plane = np.ascontiguousarray(pixels[:, :, channel : channel + 1])
        if channel < 3 or filter_.alpha_rule != "point":  # which copies alpha
            plane = _DEFINED[type(filter_)](filter_, plane)
        result[:, :, channel : channel + 1] = plane
    return result


def _curve(given: CurveFilter, plane: Wide) -> Wide:
    exact = given.curve(_WHITE)
    table: Wide = np.clip(np.floor(exact + 0.5), 0, _WHITE).astype(np.uint16)
    return table[plane]


def _gaussian(given: GaussianBlur, plane: Wide) -> Wide:
    """Return the two passes of `separable` in fixed point, with weights of 22 bits both ways.

    Samples of 16 bits keep 8 bits behind the point between the passes, so sums have 46 bits, which
    float64 holds exactly.
    """
    down = given.sigma if given.sigma_y is None else given.sigma_y
    weights = taps(given.sigma, ROW_BITS), taps(down, ROW_BITS)
    result = np.empty(plane.shape, np.uint16)
    for place, sums in fixed_point_passes(plane, *weights, 0):
        result[place] = half_up(sums, MIDDLE_BITS + ROW_BITS)
    return result


def _box(given: BoxBlur, plane: Wide) -> Wide:
    """Return (2·S + k²) // (2·k²), with k = 2·radius + 1 and S the sum of the square, exactly."""
    side = 2 * given.radius + 1
    box, border = (side, side), cv2.BORDER_REPLICATE
    # OpenCV sums uint16 in 31 bits, but float32 in float64.
    total: Any = cv2.boxFilter(
        plane.astype(np.float32), cv2.CV_64F, box, normalize=False, borderType=border
    )
    total *= 2
    total += side * side
    total /= 2 * side * side
    return np.asarray(total, np.uint16).reshape(plane.shape)


def _in_floats(given: Any, plane: Wide) -> Wide:
    """Return the result for float32, such as Pillow's resize, rounded half up and clamped."""
    made = given.apply(plane.astype(np.float32))
    made += 0.5
    return np.asarray(np.clip(made, 0, _WHITE, out=made), np.uint16)


_DEFINED: Mapping[type[Filter], Callable[[Any, Wide], Wide]] = {
    **dict.fromkeys((Levels, Gamma, Invert), _curve),
    GaussianBlur: _gaussian,
    BoxBlur: _box,
    **dict.fromkeys((Resize, Crop, Flip, Rotate90, Trim), _in_floats),
}
