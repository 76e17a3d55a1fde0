"""Blurs and ranks against SciPy, scikit-image, Pillow and slow integer loops."""

import itertools

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images, run
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.rank import Median, Rank
from workers.filters.separable import taps

SIGMAS = st.one_of(st.sampled_from([0.1, 100.0]), st.floats(0.1, 12))


def correlated(plane: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return correlations along the last axis, with a replicated border."""
    radius = len(weights) // 2
    padded = np.pad(plane, ((0, 0), (radius, radius)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, len(weights), 1) @ weights


def gaussian_sums(plane: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
    middle = (correlated(plane, taps(sigma, 22)) + (1 << 13)) >> 14
    return correlated(middle.T, taps(sigma, 16)).T


@given(images(channels=(1, 3)), SIGMAS)
def test_gaussian_blur_is_its_integer_definition(pixels: Pixels, sigma: float) -> None:
    result = GaussianBlur(sigma=sigma).apply(pixels)
    for channel in range(pixels.shape[2]):
        sums = gaussian_sums(pixels[:, :, channel].astype(np.int64), sigma)
        expected = np.minimum((sums + (1 << 23)) >> 24, 255)
        assert np.array_equal(result[:, :, channel], expected)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0, 7.3, 25.0, 40.0, 60.0, 100.0])
def test_gaussian_blur_is_scipy_s_within_the_stated_tolerance(sigma: float) -> None:
    pixels = np.asarray(drawing(331, 257))
    exact = scipy.ndimage.gaussian_filter(
        pixels.astype(np.float64), (sigma, sigma, 0), mode="nearest", truncate=4
    )
    difference = np.abs(GaussianBlur(sigma=sigma).apply(pixels) - np.floor(exact + 0.5))
    assert difference.max() <= 1
    assert (difference > 0).mean() <= 0.002


@given(images(channels=(1, 3)), st.sampled_from([0, 1, 2, 5, 40, 500]))
def test_box_blur_is_the_rounded_mean_of_the_square(pixels: Pixels, radius: int) -> None:
    side = 2 * radius + 1
    padded = np.pad(pixels, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (0, 1))
    if radius > 40:
        windows = windows[:1, :1]
    sums = windows.sum((-2, -1), dtype=np.int64)
    expected = (2 * sums + side * side) // (2 * side * side)
    found = BoxBlur(radius=radius).apply(pixels)[: expected.shape[0], : expected.shape[1]]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("radius", [1, 2, 7, 8, 31, 72, 73, 74])
def test_box_blur_rounds_the_sums_nearest_to_a_half(radius: int) -> None:
    """Squares side by side, each with one such sum."""
    side = 2 * radius + 1
    area = side * side
    sums = np.add.outer((2 * np.arange(255) + 1) * area // 2, [0, 1]).ravel()
    squares = sums[:, None] // area + (np.arange(area) < sums[:, None] % area)
    pixels = squares.reshape(-1, side, side).transpose(1, 0, 2).reshape(side, -1, 1)
    found = BoxBlur(radius=radius).apply(pixels.astype(np.uint8))[radius, radius::side, 0]
    assert np.array_equal(found, (2 * sums + area) // (2 * area))


@given(images(), st.sampled_from([3, 5, 7, 21, 101]))
def test_median_is_scipy_s_plane_by_plane(pixels: Pixels, size: int) -> None:
    expected = scipy.ndimage.median_filter(pixels, size=(size, size, 1), mode="nearest")
    assert np.array_equal(Median(size=size).apply(pixels), expected)


TALL, WIDE, BLURRED = (200_000, 1, 3), (1, 200_000, 4), (1200, 1100, 4)


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


def sharpened(plane: Pixels, sigma: float, amount: float, threshold: int) -> Pixels:
    level = plane.astype(object) << 24
    difference = level - gaussian_sums(plane.astype(np.int64), sigma).astype(object)
    result = (level << 16) + difference * int(amount * 65536 + 0.5) + (1 << 39)
    whole = np.clip(result >> 40, 0, 255)
    return np.where(abs(difference) >= threshold << 24, whole, plane).astype(np.uint8)


def difference(plane: Pixels, one: float, other: float, scale: float) -> Pixels:
    blurs = [gaussian_sums(plane.astype(np.int64), sigma).astype(object) for sigma in (one, other)]
    rounded = (abs(blurs[0] - blurs[1]) * int(scale * 65536 + 0.5) + (1 << 39)) >> 40
    return np.asarray(np.minimum(rounded, 255), np.uint8)


CHEQUERED = (np.add.outer(np.arange(19), np.arange(23)) % 2 * 255).astype(np.uint8)[..., None]
DOT = np.where(np.arange(400).reshape(20, 20, 1) == 210, 255, 0).astype(np.uint8)
EXTREMES = [CHEQUERED, DOT, 255 - DOT, image(19, 23, 1, 0) // 128 * 255, image(9, 31, 1, 1)]


def test_unsharp_mask_is_its_integer_formula() -> None:
    for threshold, amount, pixels in itertools.product(
        [0, 1, 60, 255], [0.3, 1.5, 9.99999, 10.0], EXTREMES
    ):
        found = run("unsharp_mask", pixels, sigma=1.3, amount=amount, threshold=threshold)
        assert np.array_equal(found[..., 0], sharpened(pixels[..., 0], 1.3, amount, threshold))


def test_dog_is_its_integer_formula() -> None:
    for scale, pixels in itertools.product([0.0, 1.0, 7.7, 100.0], EXTREMES):
        found = run("dog", pixels, sigma1=0.4, sigma2=3.1, scale=scale)
        assert np.array_equal(found[..., 0], difference(pixels[..., 0], 0.4, 3.1, scale))


PERCENTILES = st.one_of(st.sampled_from([0.0, 50.0, 99.999, 100.0]), st.floats(0, 100))


@given(images(), st.sampled_from([3, 5, 7, 9, 11, 21, 101]), PERCENTILES)
@example(image(1, 1, 4, 0), 101, 100.0)
def test_rank_is_scipy_s_percentile_filter(pixels: Pixels, size: int, percentile: float) -> None:
    expected = scipy.ndimage.percentile_filter(
        pixels, percentile, size=(size, size, 1), mode="nearest"
    )
    assert np.array_equal(Rank(size=size, percentile=percentile).apply(pixels), expected)
