"""Filters of tones and colours against Pillow, torchvision, OpenCV and plain formulas."""

import itertools

import cv2
import numpy as np
import pytest
import skimage.exposure
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images, pillow, run, same
from workers.filters.arithmetic.colour import blend, luma, lumas
from workers.filters.colour import Grayscale, Saturation
from workers.filters.registry import parse_chain, parse_one
from workers.filters.tone import Brightness, Contrast, Invert

FACTORS = st.one_of(st.sampled_from([0.0, 1.0, 8.0]), st.floats(0, 8, width=32))


@given(images())
def test_luma_is_its_integer_formula(pixels: Pixels) -> None:
    red, green, blue = (
        pixels[:, :, min(n, pixels.shape[2] - 1)].astype(np.int64) for n in range(3)
    )
    expected = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    assert np.array_equal(luma(pixels), expected)
    colour = np.ascontiguousarray(pixels[:, :, :3])
    assert (lumas(colour) == expected[..., None]).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Brightness, ImageEnhance.Brightness),
        (Contrast, ImageEnhance.Contrast),
        (Saturation, ImageEnhance.Color),
    ],
)
@given(pixels=images(), factor=FACTORS)
def test_enhancements_are_pillow_s(
    ours: type[Brightness], theirs: type[ImageEnhance.Brightness], pixels: Pixels, factor: float
) -> None:
    expected = theirs(pillow(pixels)).enhance(factor)
    assert same(ours(factor=factor).apply(pixels), expected)


def test_all_pairs_of_levels_blend_as_in_pillow() -> None:
    """With and without an offset that lets OpenCV blend, in its vectors and in what is left."""
    for width, factor in itertools.product(
        [256, 251, 7], [0.0, 0.3, 0.5, 1.2, 1.3, 1.5, 2.0, 3.37, 7.77, 8.0, 10.0]
    ):
        levels = np.arange(256, dtype=np.uint8)
        one, other = (each[..., None].copy() for each in np.meshgrid(levels[:width], levels))
        expected = Image.blend(pillow(other), pillow(one), factor)
        assert same(blend(other, one, factor), expected)


@given(images(channels=(1, 3)))
def test_invert_is_pillow_s(pixels: Pixels) -> None:
    assert same(Invert().apply(pixels), ImageOps.invert(pillow(pixels)))


@given(images(channels=(3,)), st.floats(0, 1, width=32))
def test_grayscale_is_a_pillow_blend_of_the_luma(pixels: Pixels, amount: float) -> None:
    grey = pillow(pixels).convert("L").convert("RGB")
    assert same(Grayscale(amount=amount).apply(pixels), Image.blend(pillow(pixels), grey, amount))


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


HEX = st.integers(0, 0xFFFFFF).map(lambda n: f"#{n:06x}")


@given(images(channels=(3,)), st.one_of(st.sampled_from([-180, 0, 180]), st.floats(-180, 180)))
def test_hue_is_torchvision_s_within_one(pixels: Pixels, degrees: float) -> None:
    from torch import from_numpy
    from torchvision.transforms.functional import adjust_hue

    exact = adjust_hue(from_numpy(pixels / 255).permute(2, 0, 1), degrees / 360)
    expected = exact.permute(1, 2, 0).numpy() * 255
    assert np.abs(run("hue", pixels, degrees=degrees) - expected).max() <= 0.51


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


@given(images(channels=(3,)), st.lists(st.floats(-8, 8), min_size=12, max_size=12))
def test_color_matrix_is_its_rounded_sums(pixels: Pixels, matrix: list[float]) -> None:
    found = run("color_matrix", pixels, matrix=matrix)
    rows = [[int(np.floor(x * 65536 + 0.5)) for x in matrix[at : at + 3]] for at in (0, 4, 8)]
    offsets = [int(np.floor(matrix[at] * 255 * 65536 + 0.5)) for at in (3, 7, 11)]
    wide = pixels.astype(np.int64)
    for channel, (row, offset) in enumerate(zip(rows, offsets, strict=True)):
        total = sum(wide[:, :, n] * row[n] for n in range(3)) + offset
        assert np.array_equal(found[:, :, channel], np.clip((total + 32768) >> 16, 0, 255))
    whole = np.array(matrix).reshape(3, 4)
    exact = np.clip(pixels @ whole[:, :3].T + 255 * whole[:, 3], 0, 255)
    assert np.abs(found - exact).max() <= 0.52


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


def test_a_matrix_may_be_text_in_a_query() -> None:
    text = parse_one("color_matrix", {"matrix": "0,1,0,0, 0,0,1,0, 1,0,0,.5"})
    numbers = [0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0.5]
    assert text == parse_chain([{"name": "color_matrix", "matrix": numbers}])[0]


def test_a_wrong_matrix_is_refused_with_what_is_needed() -> None:
    for matrix in [
        [1] * 11,
        [9] * 12,
        [float("nan")] * 12,
        ["1"] * 12,
        [True] * 12,
        "1,2,x",
        5,
        None,
    ]:
        with pytest.raises(InvalidParameter, match="a list of 12 numbers from -8 to 8 is needed"):
            parse_chain([{"name": "color_matrix", "matrix": matrix}])


@given(images(channels=(1, 3)), HEX, HEX, st.none() | HEX)
def test_colorize_is_pillow_s(pixels: Pixels, black: str, white: str, mid: str | None) -> None:
    expected = ImageOps.colorize(pillow(pixels).convert("L"), black, white, mid)
    found = run("colorize", pixels, black=black, white=white, mid=mid)
    assert np.array_equal(found, np.asarray(expected))


@given(images(channels=(3,)), st.floats(0, 1, width=32))
def test_colorize_of_some_intensity_is_a_pillow_blend(pixels: Pixels, intensity: float) -> None:
    toned = ImageOps.colorize(pillow(pixels).convert("L"), "#102030", "#fff0e0")
    expected = Image.blend(pillow(pixels), toned, intensity)
    parameters = {"black": "102030", "white": "FFF0E0", "intensity": intensity}
    assert np.array_equal(run("colorize", pixels, **parameters), np.asarray(expected))


def test_what_is_no_colour_is_refused_with_an_example() -> None:
    for given_ in ["red", "#12345", "#1234567", "", "#12345g", "##123456", 7, None]:
        with pytest.raises(InvalidParameter, match="a colour such as ff8800 or f80 is needed"):
            parse_chain([{"name": "colorize", "black": given_}])


def test_a_colour_of_three_digits_is_one_of_six() -> None:
    pixels = image(5, 5, 3, 0)
    short, long = (run("colorize", pixels, black=c) for c in ("#1fe", "11FFee"))
    assert np.array_equal(short, long)


@given(images(channels=(1, 3, 4)), HEX)
def test_composite_is_pillow_s_paste_over_the_background(pixels: Pixels, background: str) -> None:
    found = run("composite", pixels, background=background)
    if pixels.shape[2] < 4:
        assert np.array_equal(found, pixels)
        return
    behind = Image.new("RGB", (pixels.shape[1], pixels.shape[0]), background)
    behind.paste(pillow(pixels).convert("RGB"), mask=pillow(pixels).getchannel("A"))
    assert np.array_equal(found, np.asarray(behind))


@given(images(channels=(3,)))
def test_sepia_is_its_matrix_within_one(pixels: Pixels) -> None:
    tones = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    exact = np.minimum(pixels @ tones.T, 255)
    assert np.abs(run("sepia", pixels) - exact).max() <= 0.51
    assert np.array_equal(run("sepia", pixels, amount=0), pixels)
