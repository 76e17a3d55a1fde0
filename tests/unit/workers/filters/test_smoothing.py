"""Guided and non-local means against their formulas in float64, and OpenCV."""

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
from workers.filters.smoothing import Guided, NlMeans


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


def test_products_of_bright_pixels_fit_the_sums_of_the_largest_squares() -> None:
    pixels = np.full((40, 50, 3), 255, np.uint8)
    pixels[::3, ::4, 0] = 0
    found = Guided(radius=100, eps=1e-6).apply(pixels)
    assert np.abs(found - guided(pixels, 100, 1e-6)).max() < 0.51


def windows(pixels: Pixels, patch: int, search: int) -> NDArray[np.float64]:
    """Return the patches of every pixel's neighbours: (H, W, search, search, colours, patch,
    patch).
    """
    margin = patch // 2 + search // 2
    padded = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    patches = np.lib.stride_tricks.sliding_window_view(padded, (patch, patch), (0, 1))
    near = np.lib.stride_tricks.sliding_window_view(patches, (search, search), (0, 1))
    return near.transpose(0, 1, 5, 6, 2, 3, 4).astype(np.float64)


def slow_means(pixels: Pixels, h: float, patch: int, search: int) -> NDArray[np.float64]:
    """Compute the formula in float64."""
    near, middle = windows(pixels, patch, search), search // 2
    difference = near - near[:, :, middle : middle + 1, middle : middle + 1]
    weights = np.exp(-(difference**2).mean((4, 5, 6)) / h**2)
    levels = near[..., patch // 2, patch // 2]
    sums: NDArray[np.float64] = (weights[..., None] * levels).sum((2, 3))
    return np.asarray(sums / weights.sum((2, 3))[..., None], np.float64)


@given(
    images(channels=(1, 3)),
    st.one_of(st.sampled_from([1.0, 10.0, 100.0]), st.floats(1, 100)),
    st.sampled_from([1, 3, 7]),
    st.sampled_from([3, 5, 9]),
)
@example(image(1, 1, 3, 0), 1.0, 15, 21)
@example(image(1, 1, 1, 0), 100.0, 1, 3)
@example(image(1, 7, 3, 0), 30.0, 15, 21)
def test_nl_means_is_its_formula_within_one(
    pixels: Pixels, h: float, patch: int, search: int
) -> None:
    found = NlMeans(h=h, patch=patch, search=search).apply(pixels)
    assert np.abs(found - slow_means(pixels, h, patch, search)).max() < 1


def test_nl_means_of_several_tiles_is_that_of_each_place() -> None:
    pixels = np.asarray(drawing(600, 290))
    whole = NlMeans(patch=5, search=9).apply(pixels)
    part = NlMeans(patch=5, search=9).apply(np.ascontiguousarray(pixels[100:200, 200:400]))
    assert np.array_equal(whole[110:190, 210:390], part[10:-10, 10:-10])
