"""Neighbourhood filters against OpenCV, SciPy, scikit-image and slow integer loops."""

import numpy as np
import pytest
import scipy.ndimage
import skimage.filters
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images
from workers.filters.base import Filter
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.edges import Sobel
from workers.filters.rank import Median
from workers.filters.separable import taps
from workers.filters.sharpen import UnsharpMask

SIGMAS = st.one_of(st.sampled_from([0.1, 100.0]), st.floats(0.1, 12))


def gathered(plane: NDArray[np.int64], radius: int, axis: int) -> NDArray[np.int64]:
    """Return every sample's window along an axis, the border replicated: shape (H, W, 2r+1)."""
    size = plane.shape[axis]
    at = np.clip(np.arange(size)[:, None] + np.arange(-radius, radius + 1), 0, size - 1)
    return (
        np.moveaxis(plane[at] if axis == 0 else plane[:, at].transpose(1, 2, 0), -1, 0)
        if (axis == 1)
        else plane[at].transpose(0, 2, 1)
    )


def slow_gaussian(plane: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
    """Compute the definition in Python's integers."""
    rows, columns = taps(sigma, 22), taps(sigma, 16)
    radius = len(rows) // 2
    middle = (gathered(plane, radius, 1) @ rows + (1 << 13)) >> 14
    return gathered(middle, radius, 0) @ columns


@given(SIGMAS, st.sampled_from([16, 22]))
def test_gaussian_weights_are_symmetric_and_sum_to_one(sigma: float, bits: int) -> None:
    weights = taps(sigma, bits)
    assert weights.sum() == 1 << bits
    assert np.array_equal(weights, weights[::-1])
    assert len(weights) == 2 * int(4 * sigma + 0.5) + 1
    assert weights.min() >= 0


@given(images(channels=(1, 3)), SIGMAS)
def test_gaussian_blur_is_its_integer_definition(pixels: Pixels, sigma: float) -> None:
    result = GaussianBlur(sigma=sigma).apply(pixels)
    for channel in range(pixels.shape[2]):
        sums = slow_gaussian(pixels[:, :, channel].astype(np.int64), sigma)
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


@pytest.mark.parametrize("radius", [77, 500])
def test_box_blur_of_any_radius_is_exact_in_every_sample(radius: int) -> None:
    pixels = np.where(image(90, 71, 3, 1) > 127, 255, image(90, 71, 3, 2)).astype(np.uint8)
    area = (2 * radius + 1) ** 2
    padded = np.pad(pixels, ((radius + 1, radius), (radius + 1, radius), (0, 0)), mode="edge")
    table = padded.astype(np.int64).cumsum(0).cumsum(1)
    side = 2 * radius + 1
    sums = table[side:, side:] - table[:-side, side:] - table[side:, :-side] + table[:-side, :-side]
    assert np.array_equal(BoxBlur(radius=radius).apply(pixels), (2 * sums + area) // (2 * area))


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


@pytest.mark.parametrize(("sigma", "amount"), [(1.0, 1.0), (2.0, 1.5), (5.0, 3.0), (0.7, 10.0)])
def test_unsharp_mask_is_scikit_image_s_within_one(sigma: float, amount: float) -> None:
    pixels = np.asarray(drawing())
    exact = skimage.filters.unsharp_mask(
        pixels.astype(np.float64), radius=sigma, amount=amount, channel_axis=2, preserve_range=True
    )
    expected = np.clip(np.floor(exact + 0.5), 0, 255)
    found = UnsharpMask(sigma=sigma, amount=amount).apply(pixels)
    difference = np.abs(found.astype(np.int64) - expected)
    inside = difference[
        8 * int(sigma + 1) : -8 * int(sigma + 1), 8 * int(sigma + 1) : -8 * int(sigma + 1)
    ]
    assert inside.max() <= 1


@pytest.mark.parametrize("sigma", [0.1, 0.5, 3.0, 100.0])
@pytest.mark.parametrize("amount", [0.0, 1.5, 10.0])
def test_unsharp_mask_is_the_formula_up_to_the_border_within_one(
    sigma: float, amount: float
) -> None:
    pixels = np.asarray(drawing(83, 61))
    exact = pixels.astype(np.float64)
    blurred = scipy.ndimage.gaussian_filter(exact, (sigma, sigma, 0), mode="nearest", truncate=4)
    expected = np.clip(np.floor(exact + amount * (exact - blurred) + 0.5), 0, 255)
    found = UnsharpMask(sigma=sigma, amount=amount).apply(pixels)
    assert np.abs(found - expected).max() <= 1


def test_unsharp_mask_leaves_differences_below_the_threshold_alone() -> None:
    pixels = np.full((9, 9, 1), 100, np.uint8)
    pixels[4, 4] = 104
    assert np.array_equal(UnsharpMask(amount=10, threshold=5).apply(pixels), pixels)
    assert UnsharpMask(amount=10, threshold=1).apply(pixels)[4, 4] > 104


@given(images(channels=(1, 3)), st.sampled_from(["x", "y", "mag"]), st.floats(0, 100))
def test_sobel_is_the_gradient_of_the_luma(pixels: Pixels, axis: str, scale: float) -> None:
    grey = np.asarray(
        Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).convert("L")
    )
    x = scipy.ndimage.sobel(grey.astype(np.int64), axis=1, mode="nearest")
    y = scipy.ndimage.sobel(grey.astype(np.int64), axis=0, mode="nearest")
    gradient = {"x": abs(x), "y": abs(y), "mag": np.rint(np.hypot(x, y))}[axis]
    expected = np.minimum(np.floor(gradient * scale + 0.5), 255)
    found = Sobel(axis=axis, scale=scale).apply(pixels)
    assert all(np.array_equal(found[:, :, n], expected) for n in range(pixels.shape[2]))


LINEAR = [GaussianBlur(sigma=1.5), GaussianBlur(sigma=3, sigma_y=0.5), BoxBlur(radius=2)]


@pytest.mark.parametrize("filter_", LINEAR)
@given(pixels=images(channels=(4,)))
def test_the_colour_of_transparent_pixels_never_leaks(filter_: Filter, pixels: Pixels) -> None:
    pixels[:, :, 3] = np.where(pixels[:, :, 3] < 128, 0, pixels[:, :, 3])
    other = pixels.copy()
    other[pixels[:, :, 3] == 0, :3] = 77
    assert np.array_equal(filter_.apply(pixels), filter_.apply(other))


@pytest.mark.parametrize("filter_", LINEAR)
@given(pixels=images(channels=(3,)))
def test_opaque_alpha_changes_nothing_but_the_last_rounding(
    filter_: Filter, pixels: Pixels
) -> None:
    opaque = np.concatenate((pixels, np.full((*pixels.shape[:2], 1), 255, np.uint8)), 2)
    result = filter_.apply(opaque)
    difference = np.abs(result[:, :, :3].astype(int) - filter_.apply(pixels))
    assert difference.max() <= (0 if isinstance(filter_, BoxBlur) else 1)
    assert (result[:, :, 3] == 255).all()


@pytest.mark.parametrize("filter_", [UnsharpMask(), Sobel()])
def test_filters_that_keep_alpha_copy_it(filter_: Filter) -> None:
    pixels = image(17, 23, 4, 0)
    result = filter_.apply(pixels)
    assert np.array_equal(result[:, :, 3], pixels[:, :, 3])
    assert np.array_equal(result[:, :, :3], filter_.apply(np.ascontiguousarray(pixels[:, :, :3])))
