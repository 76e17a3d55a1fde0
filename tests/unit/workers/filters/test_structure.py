"""Filters of structure, place and light against OpenCV, Pillow and their definitions."""

import cv2
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images, run
from workers.filters import morphological as module
from workers.filters.arithmetic.colour import luma
from workers.filters.effects import halves, philox


@given(images())
def test_flip_is_pillow_s(pixels: Pixels) -> None:
    assert np.array_equal(run("flip", pixels), pixels[:, ::-1])
    assert np.array_equal(run("flip", pixels, direction="vertical"), pixels[::-1])


def test_rotate90_turns_clockwise() -> None:
    for turns, method in [
        (1, Image.Transpose.ROTATE_270),
        (2, Image.Transpose.ROTATE_180),
        (3, Image.Transpose.ROTATE_90),
    ]:
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


ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_numbers_its_authors_published(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    """Philox4x32-10 in kat_vectors of Random123."""
    words = [np.array([word], np.uint64) for word in counter]
    found = philox((words[0], words[1], words[2], words[3]), (key[0], key[1]))
    assert [int(word[0]) for word in found] == expected


def test_numbers_of_a_seed_are_the_words_in_order_low_halves_first() -> None:
    assert halves(0, 4, 0).tolist() == [0xE8D5, 0x6627, 0xC58D, 0xE169]
    assert np.array_equal(halves(0, 99, 5)[32:], halves(32, 67, 5))
    assert not np.array_equal(halves(0, 99, 5), halves(0, 99, 5 + (1 << 32)))


@given(images(), st.floats(0, 128), st.integers(0, 2**53 - 1))
@example(np.full((300, 301, 3), 128, np.uint8), 40.0, 9)  # of several pieces
def test_noise_adds_the_quantile_that_the_generator_names(
    pixels: Pixels, amount: float, seed: int
) -> None:
    colour = pixels[:, :, :3]
    u = halves(0, colour.size, seed).reshape(colour.shape)
    added = np.floor(scipy.stats.norm.ppf((u + 0.5) / 65536) * amount + 0.5)
    found = run("noise", pixels, amount=amount, seed=seed)[:, :, :3]
    assert np.array_equal(found, np.clip(colour + added, 0, 255))


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (7, 1), (40, 51), (129, 1000)])
@pytest.mark.parametrize("amount", [0.37, 1.0])
def test_vignette_is_half_up_in_whole_numbers(size: tuple[int, int], amount: float) -> None:
    height, width = size
    down, across = (
        np.floor(((2 * np.arange(n) + 1 - n) / max(n - 1, 1)) ** 2 * (1 << 29) + 0.5).astype(int)
        for n in size
    )
    distance = np.sqrt(((down[:, None] + across) >> 14) / 65536)
    t = np.clip((distance - 0.1) / (1 - 0.1), 0, 1)
    light = np.floor((1 - amount * t * t * (3 - 2 * t)) * 65536 + 0.5).astype(int)[..., None]
    for pixels in (image(height, width, 3, 1), np.full((height, width, 1), 255, np.uint8)):
        found = run("vignette", pixels, amount=amount, radius=0.1)
        assert np.array_equal(found, (pixels * light + (1 << 15)) >> 16)


@pytest.mark.parametrize("work", [1, 50_000, module.WORK])
@pytest.mark.parametrize(("size", "iterations"), [(3, 4), (4, 2), (9, 1), (12, 3), (31, 2)])
@pytest.mark.parametrize(
    "op", ["erode", "dilate", "open", "close", "gradient", "tophat", "blackhat"]
)
def test_tiles_of_any_size_give_the_bytes_of_opencv(
    monkeypatch: pytest.MonkeyPatch, op: str, size: int, iterations: int, work: int
) -> None:
    monkeypatch.setattr(module, "WORK", work)
    operation = getattr(cv2, f"MORPH_{op.upper()}")
    for shape in (cv2.MORPH_CROSS, cv2.MORPH_ELLIPSE, cv2.MORPH_RECT):
        kernel = np.asarray(cv2.getStructuringElement(shape, (size, size)), np.uint8)
        for pixels in (image(40, 70, 3, 1), image(1, 90, 1, 1), image(90, 1, 4, 1)):
            before = pixels.copy()
            expected = cv2.morphologyEx(pixels, operation, kernel, iterations=iterations)
            found = module.by_tiles(pixels, op, kernel, iterations)
            assert np.array_equal(found, expected.reshape(pixels.shape))
            assert np.array_equal(pixels, before)
