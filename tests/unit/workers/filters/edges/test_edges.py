"""Filters that show edges against SciPy, OpenCV and Pillow."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images, run
from workers.filters.arithmetic.colour import luma
from workers.filters.sharpen import Preset

KERNELS = Preset.model_json_schema()["properties"]["kernel"]["enum"]
SCHARR = np.array([[-3, 0, 3], [-10, 0, 10], [-3, 0, 3]])


def scharr(grey: NDArray[np.int64], axis: int, mode: str) -> NDArray[np.int64]:
    weights = SCHARR if axis == 1 else SCHARR.T
    return np.asarray(scipy.ndimage.correlate(grey, weights, mode=mode))


@pytest.mark.parametrize(
    ("name", "operator"), [("scharr", scharr), ("prewitt", scipy.ndimage.prewitt)]
)
@given(
    pixels=images(channels=(1, 3)), axis=st.sampled_from(["x", "y", "mag"]), scale=st.floats(0, 100)
)
def test_gradients_are_scipy_s_of_the_luma(
    name: str,
    operator: Callable[..., NDArray[np.int64]],
    pixels: Pixels,
    axis: str,
    scale: float,
) -> None:
    grey = luma(pixels).astype(np.int64)
    x, y = (operator(grey, axis=axis, mode="nearest") for axis in (1, 0))
    gradient = {"x": abs(x), "y": abs(y), "mag": np.rint(np.hypot(x, y))}[axis]
    expected = np.minimum(np.floor(gradient * scale + 0.5), 255)
    found = run(name, pixels, axis=axis, scale=scale)
    assert (found == expected[..., None]).all()


@given(images(channels=(1, 3)), st.sampled_from([1, 3, 5, 7]), st.floats(0, 2))
def test_laplacian_is_opencv_s_of_the_luma(pixels: Pixels, ksize: int, scale: float) -> None:
    grey = luma(pixels).astype(np.float64)
    border = cv2.BORDER_REPLICATE
    exact = cv2.Laplacian(grey, cv2.CV_64F, ksize=ksize, borderType=border).reshape(grey.shape)
    expected = np.minimum(np.floor(np.abs(exact) * scale + 0.5), 255)
    assert (run("laplacian", pixels, ksize=ksize, scale=scale) == expected[..., None]).all()


@pytest.mark.parametrize("ksize", [1, 3, 5, 7])
def test_laplacian_takes_the_strongest_contrast_there_is(ksize: int) -> None:
    board = (np.indices((24, 24)).sum(0) % 2 * 255).astype(np.uint8)
    assert run("laplacian", board[..., None], ksize=ksize).max() == 255
    assert not run("laplacian", board[..., None], ksize=ksize, scale=0).any()


def test_laplacian_of_ksize_1_is_scipy_s() -> None:
    pixels = image(40, 31, 1, 0)
    exact = scipy.ndimage.laplace(pixels[..., 0].astype(int), mode="nearest")
    assert np.array_equal(run("laplacian", pixels, ksize=1)[..., 0], np.minimum(abs(exact), 255))


@given(images(channels=(1, 3)), st.floats(0.1, 8), st.floats(0.1, 8), st.floats(0, 20))
def test_dog_is_the_difference_of_two_of_scipy_s_blurs(
    pixels: Pixels, sigma1: float, sigma2: float, scale: float
) -> None:
    grey = luma(pixels).astype(np.float64)
    blurs = [
        scipy.ndimage.gaussian_filter(grey, sigma, mode="nearest", truncate=4)
        for sigma in (sigma1, sigma2)
    ]
    exact = np.minimum(scale * np.abs(blurs[0] - blurs[1]), 255)
    found = run("dog", pixels, sigma1=sigma1, sigma2=sigma2, scale=scale)
    assert np.abs(found - exact[..., None]).max() < 0.51 + 0.02 * scale


def test_dog_of_two_equal_blurs_is_black() -> None:
    assert not run("dog", image(20, 30, 3, 0), sigma1=3, sigma2=3, scale=100).any()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_preset_is_pillow_s_inside_the_margin(kernel: str, channels: int) -> None:
    pixels = image(43, 31, channels, 7)
    stored = Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels)
    expected = np.asarray(stored.filter(getattr(ImageFilter, kernel.upper())))
    inside = slice(2, -2)
    found = run("preset", pixels, kernel=kernel)[inside, inside]
    assert np.array_equal(found, expected.reshape(pixels.shape)[inside, inside])


@pytest.mark.parametrize("kernel", KERNELS)
@given(pixels=images(channels=(1, 3)))
def test_a_preset_is_its_float32_sums_in_the_written_order(kernel: str, pixels: Pixels) -> None:
    (side, _), divisor, offset, weights = getattr(ImageFilter, kernel.upper()).filterargs
    reach = side // 2
    padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    padded = padded.astype(np.float32)
    height, width = pixels.shape[:2]
    total = np.full(pixels.shape, np.float32(offset) + np.float32(0.5))
    for row in range(side):
        top = side - 1 - row
        line = np.zeros(pixels.shape, np.float32)
        for column in range(side):
            share = np.float32(weights[row * side + column]) / np.float32(divisor)
            line += padded[top : top + height, column : column + width] * share
        total += line
    assert np.array_equal(run("preset", pixels, kernel=kernel), np.clip(np.trunc(total), 0, 255))


@pytest.mark.parametrize("name", ["scharr", "prewitt", "laplacian", "dog", "preset"])
def test_filters_of_edges_copy_alpha(name: str) -> None:
    pixels = image(17, 23, 4, 0)
    result = run(name, pixels)
    assert np.array_equal(result[:, :, 3], pixels[:, :, 3])
    assert np.array_equal(result[:, :, :3], run(name, np.ascontiguousarray(pixels[:, :, :3])))
