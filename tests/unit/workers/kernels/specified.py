"""Test images of several kinds, and the comparison of kernels with the specification."""

from collections.abc import Hashable, Sequence

import numpy as np

from models.domain.image import Pixels
from tests.emulation.emulator import emulator
from workers.filters.base import Filter


def image(random: np.random.Generator, height: int, width: int, channels: int) -> Pixels:
    """Return noise, noise on a slope, or two levels; alpha includes 0 and 255."""
    kind = random.integers(3)
    pixels = random.integers(0, 256, (height, width, channels), np.uint8)
    if kind == 1:
        slope = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
        pixels = np.asarray((slope + pixels // 16) % 256, np.uint8)
    elif kind == 2:
        pixels = np.where(pixels < 128, 0, 255).astype(np.uint8)
    if channels == 4:
        ends = random.integers(0, 3, (height, width))
        pixels[..., 3] = np.choose(ends, [0, pixels[..., 3], 255])
    return pixels


def assert_equal(filters: Sequence[Filter], images: Sequence[Pixels]) -> None:
    """Compare kernels with `apply`, in the batches that the engine forms: equal passes share one.

    Samples may differ by one level if the filter has a `device_tolerance`, in at most that share.
    """
    off = 0
    filters = [each.measured(pixels) for each, pixels in zip(filters, images, strict=True)]
    groups: dict[Hashable, list[int]] = {}
    for index, filter_ in enumerate(filters):
        groups.setdefault(filter_.device_passes, []).append(index)
    for passes, group in groups.items():
        results = emulator().run([filters[i] for i in group], [images[i] for i in group])
        for i, result in zip(group, results, strict=True):
            expected = filters[i].apply(images[i])
            assert result.shape == expected.shape
            tolerated = 1 if filters[i].device_tolerance else 0
            distance = np.abs(result.astype(np.int16) - expected)
            different = np.argwhere(distance > tolerated)
            assert not len(different), f"{filters[i]!r} {images[i].shape} {different[:5]} {passes}"
            off += int(distance.sum())
    assert off <= filters[0].device_tolerance * sum(pixels.size for pixels in images)
