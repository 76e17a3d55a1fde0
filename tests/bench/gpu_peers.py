"""Filters of other libraries on the same GPU, as users call them: one image after another.

cupyx.scipy.ndimage takes (H, W, C), torchvision (C, H, W), both uint8 here; what a library compiles
at its first call is not counted. Their bytes differ from ours where their definitions do.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import cupy
import torch
from cupyx.scipy import ndimage
from torchvision.transforms import v2

from workers.filters.base import Filter

IMAGES = 8
RUNS = 5
SLOW = 9
"""The largest window of a median that cupyx, which sorts, is asked for."""

Call = Callable[[Any, cupy.ndarray], object]
"""A library's function of the filter, whose parameters it reads, and of an image."""


def _window(side: int) -> tuple[int, int, int]:
    return side, side, 1


CUPYX: Mapping[str, Call] = {
    "gaussian_blur": lambda f, x: ndimage.gaussian_filter(
        x, (f.sigma, f.sigma, 0), mode="nearest", truncate=4
    ),
    "box_blur": lambda f, x: ndimage.uniform_filter(x, _window(2 * f.radius + 1), mode="nearest"),
    "median": lambda f, x: ndimage.median_filter(x, _window(f.size), mode="nearest"),
    "morphology": lambda f, x: ndimage.grey_erosion(x, _window(f.size), mode="nearest"),
}
TORCHVISION: Mapping[str, Callable[[Any, torch.Tensor], object]] = {
    "gaussian_blur": lambda f, x: v2.functional.gaussian_blur(
        x, 2 * int(4 * f.sigma + 0.5) + 1, f.sigma
    ),
    "invert": lambda _f, x: v2.functional.invert(x),
    "posterize": lambda f, x: v2.functional.posterize(x, f.bits),
    "solarize": lambda f, x: v2.functional.solarize(x, f.threshold),
    "brightness": lambda f, x: v2.functional.adjust_brightness(x, f.factor),
    "contrast": lambda f, x: v2.functional.adjust_contrast(x, f.factor),
    "saturation": lambda f, x: v2.functional.adjust_saturation(x, f.factor),
    "hue": lambda f, x: v2.functional.adjust_hue(x, f.degrees / 360),
    "sharpen": lambda f, x: v2.functional.adjust_sharpness(x, f.factor),
    "equalize": lambda _f, x: v2.functional.equalize(x),
    "autocontrast": lambda _f, x: v2.functional.autocontrast(x),
}


def by_cupyx(filter_: Filter, images: torch.Tensor) -> float | None:
    """Return images per second of cupyx, from uint8 (N, H, W, C) on the device; None if it has no
    such filter.
    """
    call = CUPYX.get(filter_.name)
    side = getattr(filter_, "size", 0)
    if call is None or (filter_.name == "median" and side > SLOW) or _opens(filter_):
        return None
    arrays = [cupy.from_dlpack(image) for image in images[:IMAGES]]
    with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        return _rate(lambda: [call(filter_, array) for array in arrays])


def by_torchvision(filter_: Filter, images: torch.Tensor) -> float | None:
    """Return images per second of torchvision, from uint8 (N, H, W, C) on the device; None if it
    has no such filter.
    """
    call = TORCHVISION.get(filter_.name)
    if call is None:
        return None
    tensors = [image.permute(2, 0, 1).contiguous() for image in images[:IMAGES]]
    return _rate(lambda: [call(filter_, tensor) for tensor in tensors])


def _opens(filter_: Filter) -> bool:
    """Return whether the filter is a morphology of more than one erosion."""
    return filter_.name == "morphology" and getattr(filter_, "op", "erode") != "erode"


def _rate(work: Callable[[], object]) -> float:
    work()
    runs = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        runs.append(IMAGES / (time.perf_counter() - begun))
    return statistics.median(runs)
