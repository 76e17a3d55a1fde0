"""Filters of 16-bit samples, uint16 (H, W, C): the CPU computes them with the same bytes anywhere.

Parameters keep their meaning: a level of 0 to 255 stands for 257 times as much, so that black and
white stay black and white.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.errors import InvalidParameter
from workers.filters.base import Filter
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.separable import MIDDLE_BITS, ROW_BITS, fixed_point_passes, half_up, taps
from workers.filters.tone import Gamma, Invert, Levels

Wide = NDArray[np.uint16]

_WHITE, _LEVEL = 65535, 257
"""The largest sample, and the samples of a level of 8 bits."""


def check(filters: Sequence[Filter], channels: int) -> None:
    """Raise InvalidParameter for a filter that has no definition for these 16-bit channels."""
    for each in filters:
        if type(each) not in _DEFINED:
            raise InvalidParameter(
                f"{each.name} has no definition for 16 bits; {', '.join(_NAMES)} have"
            )
        if channels == 4 and isinstance(each, GaussianBlur | BoxBlur):
            raise InvalidParameter(f"{each.name} takes 16-bit images without alpha only")


def apply(filter_: Filter, pixels: Wide) -> Wide:
    """Return the filtered image, uint16 (H, W, C) both ways; `check` has accepted the filter."""
    return _DEFINED[type(filter_)](filter_, pixels)


def _tabled(samples: Callable[[Any, NDArray[np.float64]], NDArray[np.float64]]) -> Any:
    """Return a filter that maps each sample of a colour, rounded half up; alpha is copied.

    `samples` returns the new value of each of the 65,536 samples for the parameters of a filter.
    """

    def mapped(filter_: Filter, pixels: Wide) -> Wide:
        exact = samples(filter_, np.arange(_WHITE + 1.0))
        table = np.clip(np.floor(exact + 0.5), 0, _WHITE).astype(np.uint16)
        result = table[pixels]
        if pixels.shape[2] == 4:
            result[..., 3] = pixels[..., 3]
        return result

    return mapped


def _levels(given: Levels, samples: NDArray[np.float64]) -> NDArray[np.float64]:
    share = (samples / _LEVEL - given.in_black) / (given.in_white - given.in_black)
    bent = np.clip(share, 0, 1) ** (1 / given.gamma)
    return _LEVEL * (given.out_black + (given.out_white - given.out_black) * bent)


def _gamma(given: Gamma, samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return _WHITE * given.gain * (samples / _WHITE) ** given.gamma


def _invert(_given: Invert, samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return _WHITE - samples


def _gaussian(given: GaussianBlur, pixels: Wide) -> Wide:
    """Return the two passes of `separable` in fixed point, with weights of 22 bits both ways.

    Samples of 16 bits keep 8 bits behind the point between the passes, so sums have 46 bits, which
    float64 holds exactly.
    """
    down = given.sigma if given.sigma_y is None else given.sigma_y
    weights = taps(given.sigma, ROW_BITS), taps(down, ROW_BITS)
    result = np.empty(pixels.shape, np.uint16)
    for place, sums in fixed_point_passes(pixels, *weights, 0):
        result[place] = half_up(sums, MIDDLE_BITS + ROW_BITS)
    return result


def _box(given: BoxBlur, pixels: Wide) -> Wide:
    """Return (2·S + k²) // (2·k²), with k = 2·radius + 1 and S the sum of the square, exactly."""
    side = 2 * given.radius + 1
    box, border = (side, side), cv2.BORDER_REPLICATE
    total = cv2.boxFilter(pixels.astype(np.float64), -1, box, normalize=False, borderType=border)
    mean = np.floor((2 * total + side * side) / (2 * side * side))
    return mean.astype(np.uint16).reshape(pixels.shape)


_DEFINED: Mapping[type[Filter], Callable[[Any, Wide], Wide]] = {
    Levels: _tabled(_levels),
    Gamma: _tabled(_gamma),
    Invert: _tabled(_invert),
    GaussianBlur: _gaussian,
    BoxBlur: _box,
}

_NAMES = [each.name for each in _DEFINED]
