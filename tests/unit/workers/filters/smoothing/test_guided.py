"""Guided against its formula in float64, by SciPy's means."""

import tracemalloc

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images
from workers.filters.arithmetic.colour import luma
from workers.filters.smoothing import Guided


def guided(pixels: Pixels, radius: int, eps: float) -> NDArray[np.float64]:
    """Compute the filter of He, Sun and Tang for levels from 0 to 255."""

    def mean(plane: NDArray[np.float64]) -> NDArray[np.float64]:
        window = np.ones(2 * radius + 1) / (2 * radius + 1)
        for axis in (0, 1):
            margin = [(radius, radius) if n == axis else (0, 0) for n in (0, 1)]
            padded = np.pad(plane, margin, mode="reflect")
            total = scipy.ndimage.correlate1d(padded, window, axis=axis)
            plane = total[radius : radius + plane.shape[0]] if axis == 0 else total
        return plane[:, radius : radius + plane.shape[1] - 2 * radius]

    light = luma(pixels) / 255
    spread = mean(light * light) - mean(light) ** 2 + eps
    result = np.empty(pixels.shape)
    for channel in range(pixels.shape[2]):
        plane = pixels[:, :, channel] / 255
        slope = (mean(light * plane) - mean(light) * mean(plane)) / spread
        offset = mean(plane) - slope * mean(light)
        result[:, :, channel] = 255 * (mean(slope) * light + mean(offset))
    return np.clip(result, 0, 255)


@given(
    images(channels=(1, 3)),
    st.sampled_from([1, 2, 8, 100]),
    st.one_of(st.sampled_from([1e-6, 0.01, 1.0]), st.floats(1e-6, 1)),
)
@example(image(1, 1, 3, 0), 100, 1e-6)
def test_guided_is_its_formula_within_one(pixels: Pixels, radius: int, eps: float) -> None:
    found = Guided(radius=radius, eps=eps).apply(pixels)
    assert np.abs(found - guided(pixels, radius, eps)).max() < 0.51


@pytest.mark.slow
@pytest.mark.parametrize(("radius", "eps"), [(1, 1e-6), (8, 0.01), (40, 1e-4), (100, 1.0)])
def test_guided_of_several_tiles_is_its_formula(radius: int, eps: float) -> None:
    pixels = np.asarray(drawing(1031, 541))
    found = Guided(radius=radius, eps=eps).apply(pixels)
    assert np.abs(found - guided(pixels, radius, eps)).max() < 0.51


def test_guided_keeps_alpha_and_ignores_it() -> None:
    pixels = image(17, 23, 4, 0)
    result = Guided().apply(pixels)
    assert np.array_equal(result[..., 3], pixels[..., 3])
    opaque = np.ascontiguousarray(pixels[..., :3])
    assert np.array_equal(result[..., :3], Guided().apply(opaque))


@pytest.mark.parametrize("level", [0, 1, 254, 255])
def test_guided_leaves_a_plain_image_as_it_is(level: int) -> None:
    pixels = np.full((31, 40, 3), level, np.uint8)
    assert np.array_equal(Guided(radius=100, eps=1e-6).apply(pixels), pixels)


def test_products_of_bright_pixels_fit_the_sums_of_the_largest_squares() -> None:
    pixels = np.full((40, 50, 3), 255, np.uint8)
    pixels[::3, ::4, 0] = 0
    found = Guided(radius=100, eps=1e-6).apply(pixels)
    assert np.abs(found - guided(pixels, 100, 1e-6)).max() < 0.51


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(100_000, 1, 3), (1, 100_000, 4), (1500, 1500, 3)])
def test_memory_of_guided_is_bounded(shape: tuple[int, int, int]) -> None:
    pixels = image(*shape, 0)
    tracemalloc.start()
    Guided(radius=100).apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * pixels.nbytes + (256 << 20)
