"""Resize large images stripe by stripe, with the bytes of Pillow's resize of the whole image.

Pillow's pictures take 4 bytes for each pixel, and reading one into an array takes 6 more: enlarging
to 49 megapixels took 490 MB. In stripes the arrays and a few megabytes are enough: 158 MB.
"""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from models.domain.image import Pixels
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Shape
from workers.preprocess import columns_first

STRIPE = 1 << 20
"""Pixels of a stripe, before or after its resize, whichever are more."""

STRIPE_BYTES = 24 * STRIPE
"""Bytes that the work on a stripe takes at most, measured: two arrays and three pictures."""

PILLOW = 4
"""Bytes per pixel of Pillow's pictures in colour."""

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of the part of the source that is resized, in pixels."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The resampling of one axis (0: rows, 1: columns) to `size` pixels from `low` to `high`."""

    axis: int
    size: int
    low: float
    high: float

    def is_needed(self, shape: Shape) -> bool:
        return self.size != shape[self.axis] or (self.low, self.high) != (0, self.size)

    def shape_after(self, shape: Shape) -> Shape:
        height, width, channels = shape
        return (height, self.size, channels) if self.axis else (self.size, width, channels)

    def apply(
        self, pixels: Pixels, method: Image.Resampling, modes: tuple[str, str, str]
    ) -> Pixels:
        """Return the resampled array; raises DeadlineExceeded between stripes.

        `modes` are Pillow's modes of the input, of the resampling and of the result.
        """
        came, during, goes = modes
        result = np.empty(self.shape_after(pixels.shape), np.uint8)
        lines = pixels.shape[1 - self.axis]
        step = max(1, STRIPE // max(pixels.shape[self.axis], self.size))
        for start in range(0, lines, step):
            stop_if_late()
            part = slice(start, start + step)
            at = (part, slice(None)) if self.axis else (slice(None), part)
            stripe = np.ascontiguousarray(pixels[at])
            height, width = stripe.shape[:2]
            image = Image.frombuffer(came, (width, height), stripe, "raw", came, 0, 1)
            size = (self.size, height) if self.axis else (width, self.size)
            box = (self.low, 0, self.high, height) if self.axis else (0, self.low, width, self.high)
            if came != during:
                image = image.convert(during)
            image = image.resize(size, method, box)
            if during != goes:
                image = image.convert(goes)
            result[at] = np.asarray(image).reshape(result[at].shape)
        return result


def resized(pixels: Pixels, size: tuple[int, int], method: Image.Resampling, box: Box) -> Pixels:
    """Return Pillow's `Image.resize` of the box of uint8 (H, W, C), one axis after the other.

    `size` is (height, width). Pillow resamples one axis and rounds to bytes before the other
    (libImaging/Resample.c), and a line does not depend on its neighbours, so stripes of lines give
    the same bytes. Colours are multiplied by alpha before the first axis and divided after the
    second, as Pillow does for all methods but the nearest.
    """
    passes = _passes(pixels.shape, size, box)
    if not passes:
        return pixels.copy()
    mode = _MODES[pixels.shape[2]]
    during = "RGBa" if mode == "RGBA" and method is not Image.Resampling.NEAREST else mode
    for number, each in enumerate(passes):
        first, last = number == 0, number == len(passes) - 1
        modes = mode if first else during, during, mode if last else during
        pixels = each.apply(pixels, method, modes)
    return pixels


def memory(shape: Shape, size: tuple[int, int], box: Box) -> int:
    """Return the bytes that `resized` takes at a time beside its input, by estimate."""
    arrays = [math.prod(each) for each in _shapes(shape, size, box)]
    return (sum(arrays) or math.prod(shape)) + STRIPE_BYTES


def memory_at_once(shape: Shape, size: tuple[int, int], box: Box) -> int:
    """Return the same of one call of Pillow's resize, whose result is copied into an array.

    The call takes three pictures, and reading the last of them two copies of its samples.
    """
    height, width, channels = shape
    pixels = size[0] * size[1]
    between = max([h * w for h, w, _ in _shapes(shape, size, box)[:-1]], default=0)
    results = max(PILLOW * (between + pixels), (PILLOW + 2 * channels) * pixels)
    return PILLOW * height * width + results


def _shapes(shape: Shape, size: tuple[int, int], box: Box) -> list[Shape]:
    """Return the shapes after each pass that is needed."""
    shapes = []
    for each in _passes(shape, size, box):
        shape = each.shape_after(shape)
        shapes.append(shape)
    return shapes


def _passes(shape: Shape, size: tuple[int, int], box: Box) -> list[_Pass]:
    """Return the passes that are needed, in Pillow's order."""
    left, top, right, bottom = box
    down, across = _Pass(0, size[0], top, bottom), _Pass(1, size[1], left, right)
    order = (down, across) if columns_first(shape[:2], size) else (across, down)
    return [each for each in order if each.is_needed(shape)]
