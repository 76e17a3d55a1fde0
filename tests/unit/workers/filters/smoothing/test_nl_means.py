"""Non-local means against its definition, pixel by pixel, and against OpenCV."""

import tracemalloc

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images
from workers.filters.smoothing import NlMeans


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


@settings(max_examples=60)
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


@pytest.mark.parametrize(("h", "patch", "search"), [(10, 7, 21), (30, 3, 11), (3, 15, 7)])
@pytest.mark.parametrize("channels", [1, 3])
def test_nl_means_is_within_two_of_opencv_s(h: int, patch: int, search: int, channels: int) -> None:
    pixels = np.ascontiguousarray(np.asarray(drawing(300, 140))[..., :channels])
    theirs = cv2.fastNlMeansDenoising(pixels, None, h, patch, search).reshape(pixels.shape)
    found = NlMeans(h=h, patch=patch, search=search).apply(pixels)
    difference = np.abs(found.astype(int) - theirs)
    assert difference.max() <= 2
    assert difference.mean() < 0.1


def test_nl_means_of_several_tiles_is_that_of_each_place() -> None:
    pixels = np.asarray(drawing(600, 290))
    whole = NlMeans(patch=5, search=9).apply(pixels)
    part = NlMeans(patch=5, search=9).apply(np.ascontiguousarray(pixels[100:200, 200:400]))
    assert np.array_equal(whole[110:190, 210:390], part[10:-10, 10:-10])


def test_nl_means_keeps_alpha_and_ignores_it() -> None:
    pixels = image(17, 23, 4, 0)
    filter_ = NlMeans(h=60, patch=3, search=7)
    result = filter_.apply(pixels)
    assert np.array_equal(result[..., 3], pixels[..., 3])
    opaque = np.ascontiguousarray(pixels[..., :3])
    assert np.array_equal(result[..., :3], filter_.apply(opaque))


@pytest.mark.parametrize("shape", [(30_000, 1, 1), (1, 30_000, 3), (900, 900, 1)])
def test_memory_of_nl_means_is_bounded(shape: tuple[int, int, int]) -> None:
    pixels = image(*shape, 0)
    tracemalloc.start()
    NlMeans(patch=15, search=5).apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * pixels.nbytes + (16 << 20)
