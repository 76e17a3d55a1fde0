"""Filters of structure and place against OpenCV, Pillow and their definitions."""

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import images, run
from workers.filters.arithmetic.colour import luma


@given(images())
def test_flip_is_pillow_s(pixels: Pixels) -> None:
    assert np.array_equal(run("flip", pixels), pixels[:, ::-1])
    assert np.array_equal(run("flip", pixels, direction="vertical"), pixels[::-1])


@pytest.mark.parametrize(
    ("turns", "method"),
    [
        (1, Image.Transpose.ROTATE_270),
        (2, Image.Transpose.ROTATE_180),
        (3, Image.Transpose.ROTATE_90),
    ],
)
def test_rotate90_turns_clockwise(turns: int, method: Image.Transpose) -> None:
    image = drawing(31, 17)
    expected = np.asarray(image.transpose(method))
    assert np.array_equal(run("rotate90", np.asarray(image), turns=turns), expected)


@given(images(channels=(1, 3)), st.sampled_from([2, 3, 7, 1000]))
def test_pixelate_is_the_rounded_mean_of_each_square(pixels: Pixels, size: int) -> None:
    found = run("pixelate", pixels, size=size)
    for top in range(0, pixels.shape[0], size):
        for left in range(0, pixels.shape[1], size):
            square = (slice(top, top + size), slice(left, left + size))
            mean = np.floor(pixels[square].mean((0, 1)) + 0.5)
            assert (found[square] == mean).all()


def test_pixelate_weighs_colours_by_their_alpha() -> None:
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (200, 100, 0, 255)
    pixels[1, 1] = (0, 0, 90, 85)
    pixels[0, 1] = (255, 255, 255, 0)
    found = run("pixelate", pixels, size=2)
    assert (found == (150, 75, 23, 85)).all()
    assert not run("pixelate", np.full((3, 3, 4), (9, 9, 9, 0), np.uint8)).any()


@pytest.mark.parametrize("op", ["erode", "dilate"])
@given(pixels=images(), size=st.sampled_from([3, 4, 7]))
def test_erosion_and_dilation_are_minimum_and_maximum(op: str, pixels: Pixels, size: int) -> None:
    found = run("morphology", pixels, op=op, size=size)
    smallest = op == "erode"
    filter_ = scipy.ndimage.minimum_filter if smallest else scipy.ndimage.maximum_filter
    expected = filter_(
        pixels, (size, size, 1), mode="constant", cval=255 if smallest else 0, origin=(0, 0, 0)
    )
    if size % 2:
        assert np.array_equal(found, expected)
    assert ((found <= pixels) if smallest else (found >= pixels)).all()


@pytest.mark.parametrize("op", ["open", "close", "gradient", "tophat", "blackhat"])
@pytest.mark.parametrize("shape", ["rect", "cross", "ellipse"])
def test_morphology_is_opencv_s(op: str, shape: str) -> None:
    pixels = np.asarray(drawing(61, 43))
    kernel = cv2.getStructuringElement(getattr(cv2, f"MORPH_{shape.upper()}"), (5, 5))
    expected = cv2.morphologyEx(pixels, getattr(cv2, f"MORPH_{op.upper()}"), kernel, iterations=2)
    found = run("morphology", pixels, op=op, shape=shape, size=5, iterations=2)
    assert np.array_equal(found, expected)


def test_a_difference_leaves_alpha_as_it_is() -> None:
    pixels = np.asarray(drawing(20, 20, mode="RGBA"))
    assert np.array_equal(run("morphology", pixels, op="gradient")[..., 3], pixels[..., 3])


@pytest.mark.parametrize(("method", "block"), [("mean", 11), ("gaussian", 31), ("mean", 255)])
def test_adaptive_threshold_is_opencv_s_on_the_luma(method: str, block: int) -> None:
    pixels = np.asarray(drawing(90, 70, mode="RGBA"))
    constant = getattr(cv2, f"ADAPTIVE_THRESH_{method.upper()}_C")
    expected = cv2.adaptiveThreshold(
        luma(pixels).copy(), 255, constant, cv2.THRESH_BINARY, block, -3.5
    )
    found = run("adaptive_threshold", pixels, method=method, block=block, c=-3.5)
    assert found.shape == (70, 90, 3)
    assert (found == expected[..., None]).all()


def test_canny_is_opencv_s_on_the_luma() -> None:
    pixels = np.asarray(drawing(90, 70))
    expected = cv2.Canny(luma(pixels).copy(), 50, 120)
    found = run("canny", pixels, low=50, high=120)
    assert (found == expected[..., None]).all()
    assert set(np.unique(found)) == {0, 255}
    smooth = run("canny", pixels, low=50, high=120, sigma=3)
    assert 0 < smooth.sum() < found.sum()


@pytest.mark.parametrize("diameter", [3, 5, 9])
def test_bilateral_rounds_grey_as_it_rounds_colours(diameter: int) -> None:
    grey = np.random.default_rng(1).integers(0, 256, (40, 33, 1), np.uint8)
    colour = run("bilateral", np.repeat(grey, 3, 2), diameter=diameter, sigma_color=90)
    found = run("bilateral", grey, diameter=diameter, sigma_color=30)
    assert np.array_equal(found, colour[..., :1])


@pytest.mark.parametrize("diameter", [1, 2, 9, 33])
def test_bilateral_is_opencv_s_and_leaves_alpha(diameter: int) -> None:
    pixels = np.asarray(drawing(40, 30, mode="RGBA")).copy()
    pixels[..., 3] = 77
    colour = np.ascontiguousarray(pixels[..., :3])
    expected = cv2.bilateralFilter(colour, diameter, 30, 5, borderType=cv2.BORDER_REFLECT_101)
    found = run("bilateral", pixels, diameter=diameter, sigma_color=30, sigma_space=5)
    assert np.array_equal(found[..., :3], expected)
    assert (found[..., 3] == 77).all()
