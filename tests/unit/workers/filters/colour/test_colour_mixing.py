"""Filters that mix colours against Pillow, torchvision and plain formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch import from_numpy
from torchvision.transforms.functional import adjust_hue

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images, pillow, run
from workers.filters.registry import parse_chain, parse_one

HEX = st.integers(0, 0xFFFFFF).map(lambda n: f"#{n:06x}")


@given(images(channels=(3,)), st.one_of(st.sampled_from([-180, 0, 180]), st.floats(-180, 180)))
def test_hue_is_torchvision_s_within_one(pixels: Pixels, degrees: float) -> None:
    exact = adjust_hue(from_numpy(pixels / 255).permute(2, 0, 1), degrees / 360)
    expected = exact.permute(1, 2, 0).numpy() * 255
    assert np.abs(run("hue", pixels, degrees=degrees) - expected).max() <= 0.51


@pytest.mark.parametrize("degrees", [-150.0, 33.3, 120.0])
def test_hue_is_torchvision_s_of_bytes_within_one(degrees: float) -> None:
    pixels = image(61, 47, 3, 1)
    expected = adjust_hue(from_numpy(pixels).permute(2, 0, 1), degrees / 360).permute(1, 2, 0)
    difference = run("hue", pixels, degrees=degrees).astype(int) - expected.numpy()
    assert np.abs(difference).max() <= 1


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


@given(images())
def test_hue_turned_by_nothing_or_of_grey_changes_nothing(pixels: Pixels) -> None:
    assert np.array_equal(run("hue", pixels), pixels)
    grey = np.repeat(pixels[:, :, :1], 3, 2)
    assert np.array_equal(run("hue", grey, degrees=100), grey)


def test_hue_turns_red_to_green_and_to_blue() -> None:
    red = np.array([[[200, 10, 10]]], np.uint8)
    assert run("hue", red, degrees=120).tolist() == [[[10, 200, 10]]]
    assert run("hue", red, degrees=-120).tolist() == [[[10, 10, 200]]]


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


@given(images())
def test_color_matrix_leaves_colours_alone_by_default(pixels: Pixels) -> None:
    found = run("color_matrix", pixels)
    assert (found == pixels).all()
    assert found.shape[2] == max(3, pixels.shape[2])


def test_a_matrix_may_be_text_in_a_query() -> None:
    text = parse_one("color_matrix", {"matrix": "0,1,0,0, 0,0,1,0, 1,0,0,.5"})
    numbers = [0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0.5]
    assert text == parse_chain([{"name": "color_matrix", "matrix": numbers}])[0]


@pytest.mark.parametrize(
    "matrix", [[1] * 11, [9] * 12, [float("nan")] * 12, ["1"] * 12, [True] * 12, "1,2,x", 5, None]
)
def test_a_wrong_matrix_is_refused_with_what_is_needed(matrix: object) -> None:
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


@pytest.mark.parametrize(
    "given_", ["red", "#12345", "#1234567", "", "#12345g", "##123456", 7, None]
)
def test_what_is_no_colour_is_refused_with_an_example(given_: object) -> None:
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


POINT = [
    ("hue", {"degrees": 50}),
    ("color_matrix", {"matrix": [0.5, 0.5, 0, 0, 1, -1, 0.5, 0.1, 0, 0, 2, -0.3]}),
    ("colorize", {"black": "#123456"}),
    ("vignette", {"amount": 1}),
    ("noise", {"amount": 20}),
]


@pytest.mark.parametrize(("name", "parameters"), POINT)
@given(pixels=images(channels=(4,)))
def test_alpha_stays_and_colours_are_treated_as_if_there_was_none(
    name: str, parameters: dict[str, object], pixels: Pixels
) -> None:
    result = run(name, pixels, **parameters)
    assert np.array_equal(result[:, :, 3], pixels[:, :, 3])
    opaque = run(name, np.ascontiguousarray(pixels[:, :, :3]), **parameters)
    assert np.array_equal(result[:, :, :3], opaque)


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
