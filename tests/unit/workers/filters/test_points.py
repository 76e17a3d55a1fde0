"""Filters of tones and colours against Pillow, torchvision, OpenCV and plain formulas."""

import itertools
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import skimage.exposure
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images, pillow, run, same
from workers.filters.arithmetic.colour import blend, luma, lumas
from workers.filters.tone import Contrast


@given(images())
def test_luma_is_its_integer_formula(pixels: Pixels) -> None:
    red, green, blue = (
        pixels[:, :, min(n, pixels.shape[2] - 1)].astype(np.int64) for n in range(3)
    )
    expected = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    assert np.array_equal(luma(pixels), expected)
    colour = np.ascontiguousarray(pixels[:, :, :3])
    assert (lumas(colour) == expected[..., None]).all()


FACTORS = {"factor": st.one_of(st.sampled_from([0.0, 1.0, 8.0]), st.floats(0, 8, width=32))}
SHARES = st.floats(0, 1, width=32)
HEX = st.integers(0, 0xFFFFFF).map(lambda n: f"#{n:06x}")


def grey(image: Image.Image) -> Image.Image:
    return image.convert("L").convert("RGB")


def toned(image: Image.Image, intensity: float, **colours: Any) -> Image.Image:
    return Image.blend(image, ImageOps.colorize(image.convert("L"), **colours), intensity)


def pasted(image: Image.Image, background: str) -> Image.Image:
    if image.mode != "RGBA":
        return image
    behind = Image.new("RGB", image.size, background)
    behind.paste(image.convert("RGB"), mask=image.getchannel("A"))
    return behind


PILLOW: list[tuple[str, tuple[int, ...], dict[str, Any], Callable[..., Image.Image]]] = [
    (
        "brightness",
        (1, 3, 4),
        FACTORS,
        lambda i, factor: ImageEnhance.Brightness(i).enhance(factor),
    ),
    ("contrast", (1, 3, 4), FACTORS, lambda i, factor: ImageEnhance.Contrast(i).enhance(factor)),
    ("saturation", (1, 3, 4), FACTORS, lambda i, factor: ImageEnhance.Color(i).enhance(factor)),
    ("invert", (1, 3), {}, ImageOps.invert),
    ("grayscale", (3,), {"amount": SHARES}, lambda i, amount: Image.blend(i, grey(i), amount)),
    ("posterize", (1, 3), {"bits": st.integers(1, 8)}, ImageOps.posterize),
    ("solarize", (1, 3), {"threshold": st.integers(0, 256)}, ImageOps.solarize),
    ("equalize", (1, 3), {}, ImageOps.equalize),
    (
        "autocontrast",
        (1, 3),
        {"cutoff": st.sampled_from([0.0, 1.0, 10.0, 49.9]), "preserve_tone": st.booleans()},
        ImageOps.autocontrast,
    ),
    (
        "colorize",
        (1,),
        {"black": HEX, "white": HEX, "mid": st.none() | HEX},
        ImageOps.colorize,
    ),
    ("colorize", (3,), {"intensity": SHARES, "black": HEX, "white": HEX}, toned),
    ("composite", (1, 3, 4), {"background": HEX}, pasted),
]


@pytest.mark.parametrize(
    ("name", "channels", "parameters", "theirs"),
    PILLOW,
    ids=[f"{n}-{p[0]}" for n, p in enumerate(PILLOW)],
)
@given(data=st.data())
def test_a_filter_is_pillow_s(
    name: str,
    channels: tuple[int, ...],
    parameters: dict[str, Any],
    theirs: Callable[..., Image.Image],
    data: st.DataObject,
) -> None:
    pixels, chosen = data.draw(images(channels)), data.draw(st.fixed_dictionaries(parameters))
    assert same(run(name, pixels, **chosen), theirs(pillow(pixels), **chosen))


def test_all_pairs_of_levels_blend_as_in_pillow() -> None:
    """With and without an offset that lets OpenCV blend, in its vectors and in what is left."""
    for width, factor in itertools.product(
        [256, 251, 7], [0.0, 0.3, 0.5, 1.2, 1.3, 1.5, 2.0, 3.37, 7.77, 8.0, 10.0]
    ):
        levels = np.arange(256, dtype=np.uint8)
        one, other = (each[..., None].copy() for each in np.meshgrid(levels[:width], levels))
        expected = Image.blend(pillow(other), pillow(one), factor)
        assert same(blend(other, one, factor), expected)


def test_contrast_of_a_large_image_sums_without_overflow() -> None:
    pixels = np.full((4100, 4100, 1), 255, np.uint8)
    assert Contrast(factor=0).apply(pixels).min() == 255


LEVELS = st.integers(0, 255)


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


@pytest.mark.parametrize(
    "degrees", [-180.0, -90.0, -60.0, -0.001, 0.4, 30.0, 45.0, 59.9999, 77.7, 150.0, 180.0]
)
def test_hue_is_its_formula_in_whole_numbers(degrees: float) -> None:
    """Channel n = 5, 3, 1 is V - C·clip(min(k, 4 - k), 0, 1), k = (n + hue) mod 6, half-up."""
    axis = np.array([0, 1, 2, 127, 128, 129, 254, 255])
    corners = np.stack(np.meshgrid(axis, axis, axis), -1).reshape(16, 32, 3).astype(np.uint8)
    for pixels in (corners, image(31, 8, 3, 1)):
        red, green, blue = (pixels[:, :, n].astype(np.int64) for n in range(3))
        value = pixels.max(2).astype(np.int64)
        chroma = value - pixels.min(2)
        hue = np.where(green == value, 2 * chroma + blue - red, 4 * chroma + red - green)
        hue = np.where(red == value, green - blue, hue) << 16
        hue += chroma * int(np.floor(degrees / 60 * 65536 + 0.5))
        chroma <<= 16
        found = run("hue", pixels, degrees=degrees)
        for channel, n in enumerate((5, 3, 1)):
            k = (hue + n * chroma) % np.maximum(6 * chroma, 1)
            share = np.clip(np.minimum(k, 4 * chroma - k), 0, chroma)
            assert np.array_equal(found[:, :, channel], ((value << 16) + 32768 - share) >> 16)


HIGHEST = ((1 << 24) - 1 - (1 << 15)) / 255 / 65536
"""The positive weights of a row, at most, for which float32 holds all sums."""


@pytest.mark.parametrize(
    "row",
    [
        [HIGHEST - 0.5, 0.5, 0, 0],
        [HIGHEST, 0.00004, -0.3, 0],
        [HIGHEST - 0.0001, -HIGHEST / 2, 0, 0],
        [0.7, 0.4, -0.1, 0.02],
        [8, 8, 8, 8],
        [0.3, 0.9, 0.4, 0],
        [-8, -8, -8, -8],
        [-0.5, -0.5, 0, 1],
        [1 / 255, 0, 0, 1],
        [-7.93, 3.21, 7.77, -6.5],
    ],
)
def test_color_matrix_rounds_half_up_at_the_bounds_of_its_arithmetic(row: list[float]) -> None:
    levels = np.arange(256)
    both = np.stack(np.broadcast_arrays(levels[:, None], levels, 255 - levels), -1)
    for pixels in (both.astype(np.uint8), (image(40, 50, 3, 1) // 128 * 255).astype(np.uint8)):
        fixed = np.floor(np.array(row) * [1, 1, 1, 255] * 65536 + 0.5).astype(np.int64)
        total = pixels.astype(np.int64) @ fixed[:3] + fixed[3]
        found = run("color_matrix", pixels, matrix=row * 3)
        assert (found == np.clip((total + 32768) >> 16, 0, 255)[..., None]).all()


def test_a_colour_of_three_digits_is_one_of_six() -> None:
    pixels = image(5, 5, 3, 0)
    short, long = (run("colorize", pixels, black=c) for c in ("#1fe", "11FFee"))
    assert np.array_equal(short, long)


@given(images(channels=(3,)))
def test_sepia_is_its_matrix_within_one(pixels: Pixels) -> None:
    tones = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    exact = np.minimum(pixels @ tones.T, 255)
    assert np.abs(run("sepia", pixels) - exact).max() <= 0.51
    assert np.array_equal(run("sepia", pixels, amount=0), pixels)
