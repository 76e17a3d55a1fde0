"""Filters of tones against Pillow, OpenCV and scikit-image, sample by sample."""

import cv2
import numpy as np
import pytest
import skimage.exposure
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import images
from workers.filters.arithmetic.luma import luma
from workers.filters.registry import parse_one

LEVELS = st.integers(0, 255)


def run(name: str, pixels: Pixels, **parameters: object) -> Pixels:
    return parse_one(name, parameters).apply(pixels)


def pillow(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def same(ours: Pixels, theirs: object) -> bool:
    return np.array_equal(ours, np.asarray(theirs).reshape(ours.shape))


@pytest.mark.parametrize("gamma", [0.05, 0.45, 1.0, 2.2, 20.0])
@pytest.mark.parametrize("gain", [0.3, 1.0, 3.0])
def test_gamma_is_scikit_image_s(gamma: float, gain: float) -> None:
    """Within the half-way cases, which they round to even."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    expected = skimage.exposure.adjust_gamma(ramp, gamma, gain).astype(int)
    difference = np.abs(run("gamma", ramp, gamma=gamma, gain=gain).astype(int) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02 or gain == 0.3


def test_levels_map_their_ends_and_clip_beyond() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)
    found = run("levels", ramp, in_black=50, in_white=150, out_black=10, out_white=210)[0, :, 0]
    assert found[:51].tolist() == [10] * 51
    assert found[150:].tolist() == [210] * 106
    assert found[50:151].tolist() == [10 + 2 * n for n in range(101)]
    backwards = run("levels", ramp, out_black=255, out_white=0)
    assert np.array_equal(backwards, 255 - ramp)


def test_the_gamma_of_levels_lightens_the_middle() -> None:
    middle = np.full((1, 1, 1), 128, np.uint8)
    assert run("levels", middle, gamma=2)[0, 0, 0] == int(255 * (128 / 255) ** 0.5 + 0.5)


@given(images(channels=(1, 3)), st.integers(1, 8))
def test_posterize_is_pillow_s(pixels: Pixels, bits: int) -> None:
    assert same(run("posterize", pixels, bits=bits), ImageOps.posterize(pillow(pixels), bits))


@given(images(channels=(1, 3)), st.integers(0, 256))
def test_solarize_is_pillow_s(pixels: Pixels, threshold: int) -> None:
    expected = ImageOps.solarize(pillow(pixels), threshold)
    assert same(run("solarize", pixels, threshold=threshold), expected)


@given(images(), LEVELS, LEVELS)
def test_threshold_is_opencv_s_on_the_luma(pixels: Pixels, value: int, light: int) -> None:
    _, expected = cv2.threshold(luma(pixels).copy(), value, light, cv2.THRESH_BINARY)
    found = run("threshold", pixels, value=value, max=light)
    for channel in range(min(3, pixels.shape[2])):
        assert np.array_equal(found[:, :, channel], expected.reshape(pixels.shape[:2]))
    assert np.array_equal(found[:, :, 3:], pixels[:, :, 3:])


def test_otsu_parts_two_groups_of_tones() -> None:
    tones = np.random.default_rng(0).normal(60, 10, (50, 80))
    tones[:, 40:] += 120
    pixels = np.clip(tones, 0, 255).astype(np.uint8)[..., None]
    found = run("otsu", pixels)[..., 0]
    assert (found[:, :40] == 0).all()
    assert (found[:, 40:] == 255).all()


@given(images(channels=(3,)))
def test_sepia_is_its_matrix_within_one(pixels: Pixels) -> None:
    tones = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    exact = np.minimum(pixels @ tones.T, 255)
    assert np.abs(run("sepia", pixels) - exact).max() <= 0.51
    assert np.array_equal(run("sepia", pixels, amount=0), pixels)


def test_sepia_makes_a_grey_image_brown() -> None:
    found = run("sepia", np.full((2, 2, 1), 100, np.uint8))
    assert found.shape == (2, 2, 3)
    assert found[0, 0].tolist() == [135, 120, 94]


@given(images(channels=(1, 3)), st.sampled_from([0.0, 1.0, 10.0, 49.9]), st.booleans())
def test_autocontrast_is_pillow_s(pixels: Pixels, cutoff: float, tone: bool) -> None:
    expected = ImageOps.autocontrast(pillow(pixels), cutoff, preserve_tone=tone)
    found = run("autocontrast", pixels, cutoff=cutoff, preserve_tone=tone)
    assert same(found, expected)


@given(images(channels=(1, 3)))
def test_equalize_is_pillow_s(pixels: Pixels) -> None:
    assert same(run("equalize", pixels), ImageOps.equalize(pillow(pixels)))


@pytest.mark.parametrize("tiles", [1, 3, 8, 32])
def test_clahe_of_a_grey_image_is_opencv_s(tiles: int) -> None:
    grey = np.asarray(drawing(157, 101, mode="L"))
    expected = cv2.createCLAHE(3.0, (tiles, tiles)).apply(grey)
    assert same(run("clahe", grey[..., None], clip_limit=3, tiles=tiles), expected)


def test_clahe_of_a_colour_image_changes_lightness_and_little_else() -> None:
    pixels = np.asarray(drawing(157, 101))
    found = run("clahe", pixels)
    before, after = (cv2.cvtColor(p, cv2.COLOR_RGB2YCrCb).astype(int) for p in (pixels, found))
    expected = cv2.createCLAHE(2.0, (8, 8)).apply(before[..., 0].astype(np.uint8))
    inside = ((found > 0) & (found < 255)).all(2)
    assert np.abs(after[..., 0] - expected)[inside].max() <= 2
    assert np.abs(after[..., 1:] - before[..., 1:])[inside].max() <= 2


@given(images(), st.sampled_from([0.0, 1.0, 2.0, 10.0]))
def test_sharpen_is_pillow_s_and_leaves_alpha(pixels: Pixels, factor: float) -> None:
    found = run("sharpen", pixels, factor=factor)
    colour = np.ascontiguousarray(pixels[:, :, :3])
    expected = ImageEnhance.Sharpness(pillow(colour)).enhance(factor)
    assert same(np.ascontiguousarray(found[:, :, :3]), expected)
    assert np.array_equal(found[:, :, 3:], pixels[:, :, 3:])
