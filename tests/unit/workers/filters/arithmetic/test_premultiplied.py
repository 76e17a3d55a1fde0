"""Blurs of images with alpha against the written rule in unbounded integers."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images
from workers.filters.base import Filter
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.separable import taps

BLURS = [GaussianBlur(sigma=0.6), GaussianBlur(sigma=3), GaussianBlur(sigma=20), BoxBlur(radius=3)]


def correlated(plane: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return correlations along the last axis, with a replicated border."""
    radius = len(weights) // 2
    padded = np.pad(plane, ((0, 0), (radius, radius)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, len(weights), 1) @ weights


def gaussian_sums(plane: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
    middle = (correlated(plane, taps(sigma, 22)) + (1 << 13)) >> 14
    return correlated(middle.T, taps(sigma, 16)).T


@given(images(channels=(4,)), st.sampled_from([0.1, 0.6, 2.0, 11.0]))
def test_gaussian_blur_with_alpha_is_the_written_rule(pixels: Pixels, sigma: float) -> None:
    wide = pixels.astype(np.int64)
    alpha = wide[:, :, 3]
    weight = gaussian_sums(255 * alpha, sigma)
    visible = (weight // 255 + (1 << 23)) >> 24
    result = GaussianBlur(sigma=sigma).apply(pixels)
    assert np.array_equal(result[:, :, 3], visible)
    for channel in range(3):
        colour = gaussian_sums(wide[:, :, channel] * alpha, sigma)
        straight = (510 * colour + weight) // np.maximum(2 * weight, 1)
        assert np.array_equal(result[:, :, channel], np.where(visible > 0, straight, 0))


@given(images(channels=(4,)), st.sampled_from([0, 1, 4, 60]))
def test_box_blur_with_alpha_is_the_weighted_mean(pixels: Pixels, radius: int) -> None:
    wide, box = pixels.astype(np.int64), np.ones(2 * radius + 1, np.int64)
    alpha = wide[:, :, 3]
    weight = correlated(correlated(alpha, box).T, box).T
    visible = (2 * weight + len(box) ** 2) // (2 * len(box) ** 2)
    result = BoxBlur(radius=radius).apply(pixels)
    assert np.array_equal(result[:, :, 3], visible)
    for channel in range(3):
        colour = correlated(correlated(wide[:, :, channel] * alpha, box).T, box).T
        straight = (2 * colour + weight) // np.maximum(2 * weight, 1)
        assert np.array_equal(result[:, :, channel], np.where(visible > 0, straight, 0))


@pytest.mark.parametrize("filter_", BLURS)
@pytest.mark.parametrize("alpha", [1, 2, 5, 20, 255])
def test_a_white_shape_on_nothing_has_no_dark_fringe(filter_: Filter, alpha: int) -> None:
    pixels = np.zeros((5, 200, 4), np.uint8)
    pixels[:, :100] = (255, 255, 255, alpha)
    result = filter_.apply(pixels)
    visible = result[:, :, 3] > 0
    assert (result[visible][:, :3] == 255).all()
    assert not result[~visible].any()


@pytest.mark.parametrize("filter_", BLURS)
@given(colour=st.tuples(*[st.integers(0, 255)] * 3), pixels=images(channels=(4,)))
def test_a_plain_colour_stays_itself_under_any_alpha(
    filter_: Filter, colour: tuple[int, int, int], pixels: Pixels
) -> None:
    pixels[:, :, :3] = colour
    result = filter_.apply(pixels)
    assert (result[result[:, :, 3] > 0][:, :3] == colour).all()


@pytest.mark.parametrize("filter_", [GaussianBlur(sigma=0.1), BoxBlur(radius=0)])
@given(pixels=images(channels=(4,)))
def test_a_blur_of_one_pixel_keeps_all_that_can_be_seen(filter_: Filter, pixels: Pixels) -> None:
    expected = np.where(pixels[:, :, 3:] > 0, pixels, 0)
    assert np.array_equal(filter_.apply(pixels), expected)


@pytest.mark.parametrize("filter_", BLURS)
def test_a_blur_needs_at_most_ten_times_the_memory_of_its_image(filter_: Filter) -> None:
    pixels = image(1200, 1100, 4, 0)
    tracemalloc.start()
    filter_.apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * pixels.nbytes
