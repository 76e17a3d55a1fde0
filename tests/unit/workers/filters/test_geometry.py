"""Filters that change the size, against Pillow and numpy."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageOps

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, InvalidParameter
from models.domain.image import Pixels
from tests.unit.workers.filters.images import PAD, image, images, pillow, run, same
from workers.filters import geometry as resampling
from workers.filters.arithmetic.colour import luma
from workers.filters.interruption import ending_at
from workers.filters.registry import parse_chain, parse_one
from workers.operations import FilterChain

METHODS = {name: Image.Resampling[name.upper()] for name in resampling._METHODS}
SIDES = st.integers(1, 60)


def chain(*ops: dict[str, object]) -> FilterChain:
    return FilterChain(parse_chain(ops))


@given(images(), SIDES, SIDES, st.sampled_from(list(METHODS)), st.booleans())
def test_resize_to_fill_is_pillow_s(
    pixels: Pixels, width: int, height: int, method: str, same_width: bool
) -> None:
    width = pixels.shape[1] if same_width else width
    expected = np.asarray(pillow(pixels).resize((width, height), METHODS[method]))
    found = run("resize", pixels, width=width, height=height, fit="fill", method=method)
    assert np.array_equal(found, expected.reshape(height, width, -1))


GRAVITIES = {
    **{"center": (0.5, 0.5), "north": (0.5, 0), "south": (0.5, 1), "west": (0, 0.5)},
    **{"east": (1, 0.5), "northwest": (0, 0), "southeast": (1, 1)},
    **{"northeast": (1, 0), "southwest": (0, 1)},
}


@given(images(), SIDES, SIDES, st.sampled_from(list(GRAVITIES)))
def test_resize_to_cover_is_pillow_s_fit(
    pixels: Pixels, width: int, height: int, gravity: str
) -> None:
    at = GRAVITIES[gravity]
    size = (width, height)
    expected = ImageOps.fit(pillow(pixels), size, Image.Resampling.BILINEAR, centering=at)
    found = run("resize", pixels, width=width, height=height, fit="cover", gravity=gravity)
    assert np.array_equal(found, np.asarray(expected).reshape(height, width, -1))


@pytest.mark.parametrize(("focus", "first"), [(0, 0), (0.3, 2), (0.5, 6), (0.6, 8), (1, 12)])
def test_cover_keeps_the_pixels_around_its_focus(focus: float, first: int) -> None:
    pixels = image(8, 20, 3, 0)
    of_columns = {"focus_x": focus, "gravity": "northwest"}
    found = run("resize", pixels, width=8, height=8, fit="cover", **of_columns)
    assert np.array_equal(found, pixels[:, first : first + 8])
    turned = pixels.transpose(1, 0, 2)
    found = run("resize", turned, width=8, height=8, fit="cover", focus_y=focus)
    assert np.array_equal(found, turned[first : first + 8])


@given(images(), st.integers(2, 60), st.integers(2, 60))
def test_minimum_sizes_are_pillow_s_cover(pixels: Pixels, width: int, height: int) -> None:
    found = run("resize", pixels, width=1, height=1, min_width=width, min_height=height)
    expected = ImageOps.cover(pillow(pixels), (width, height), Image.Resampling.BILINEAR)
    assert np.array_equal(found, np.asarray(expected).reshape(found.shape))


@given(images(), SIDES, SIDES)
def test_resize_to_contain_is_pillow_s(pixels: Pixels, width: int, height: int) -> None:
    found = run("resize", pixels, width=width, height=height)
    assert max(found.shape[0] - height, found.shape[1] - width) == 0
    expected = ImageOps.contain(pillow(pixels), (width, height), Image.Resampling.BILINEAR)
    assume(min(expected.size) > 0)
    assert np.array_equal(found, np.asarray(expected).reshape(found.shape))


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ({}, (300, 400)),
        ({"width": 200}, (150, 200)),
        ({"height": 100}, (100, 133)),
        ({"width": 1}, (1, 1)),
        ({"width": 200, "height": 200}, (150, 200)),
        ({"width": 800, "height": 60, "fit": "contain"}, (60, 80)),
        ({"width": 200, "height": 200, "fit": "cover"}, (200, 200)),
        ({"width": 7, "height": 900, "fit": "fill"}, (900, 7)),
        ({"width": 200, "fit": "cover"}, (150, 200)),
        ({"width": 101, "dpr": 1.5}, (114, 152)),
        ({"width": 800, "enlarge": False}, (300, 400)),
        ({"width": 800, "height": 90, "fit": "fill", "enlarge": False}, (90, 400)),
        ({"width": 800, "height": 200, "fit": "cover", "enlarge": False}, (200, 400)),
        ({"width": 200, "min_height": 200}, (200, 267)),
        ({"width": 200, "min_width": 300, "min_height": 200, "dpr": 2}, (450, 600)),
        ({"min_width": 4000, "enlarge": False}, (3000, 4000)),
        ({"width": 200, "min_height": 200, "fit": "fill"}, (200, 200)),
    ],
)
def test_a_side_that_is_left_out_follows_from_the_other(
    parameters: dict[str, object], size: tuple[int, int]
) -> None:
    filter_ = parse_one("resize", parameters)
    assert filter_.size_after(300, 400) == size
    assert filter_.apply(image(300, 400, 1, 0)).shape == (*size, 1)


def test_transparent_colours_do_not_leak_when_an_image_gets_smaller() -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:, ::2] = (0, 255, 0, 0)
    pixels[:, 1::2] = (200, 0, 0, 255)
    found = run("resize", pixels, width=2)
    assert found[..., 1].max() == 0
    assert found[..., 3].max() < 255


ANGLES = st.sampled_from([-360, -90, 0, 90, 180, 270]) | st.floats(-360, 360)


@given(images(), ANGLES, st.booleans(), st.sampled_from(["bilinear", "bicubic"]))
def test_rotate_is_pillow_s(pixels: Pixels, degrees: float, expand: bool, method: str) -> None:
    opaque = (255, 136, 0, 255)
    grey = luma(np.full((1, 1, 4), opaque, np.uint8)).item()
    colour = (grey,) if pixels.shape[2] == 1 else opaque
    fill = colour[: pixels.shape[2]]
    expected = pillow(pixels).rotate(-degrees, METHODS[method], expand, fillcolor=fill)
    chosen = {"degrees": degrees, "expand": expand, "method": method}
    found = run("rotate", pixels, **chosen, background="ff8800")
    assert found.shape[:2] == expected.size[::-1]
    assert same(found, expected)


def test_a_background_of_a_rotation_keeps_its_opacity() -> None:
    found = run("rotate", image(9, 9, 4, 0), degrees=45, background="ff880080")
    assert found[0, 0].tolist() == [255, 135, 0, 128]  # 136 · 128 / 255 is rounded to a byte


@given(images(), st.integers(1, 20))
def test_round_corners_keep_the_share_of_alpha_inside_their_circles(
    pixels: Pixels, radius: int
) -> None:
    height, width, channels = pixels.shape
    radius = min(radius, height // 2, width // 2)
    y, x = (np.mgrid[: 8 * height, : 8 * width] + 0.5) / 8
    beyond = [
        np.maximum(radius - np.minimum(at, side - at), 0) for at, side in ((y, height), (x, width))
    ]
    inside = np.hypot(*beyond) <= radius
    share = inside.reshape(height, 8, width, 8).mean((1, 3))
    found = run("round_corners", pixels, radius=max(radius, 1))
    alpha = pixels[..., 3] if channels == 4 else 255
    assert np.array_equal(found[..., 3], np.floor(alpha * share + 0.5))
    assert (found[..., :3] == pixels[..., :3]).all()


@given(images(), st.data())
def test_crop_is_a_slice(pixels: Pixels, data: st.DataObject) -> None:
    height, width = pixels.shape[:2]
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    columns = data.draw(st.none() | st.integers(1, width - left))
    rows = data.draw(st.none() | st.integers(1, height - top))
    found = run("crop", pixels, left=left, top=top, width=columns, height=rows)
    expected = pixels[top:, left:][:rows, :columns]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "parameters",
    [
        {"left": 20},
        {"top": 10},
        {"width": 21},
        {"height": 11},
        {"left": 19, "width": 2},
        {"top": 1_000_000, "height": 1},
    ],
)
def test_a_crop_outside_the_image_is_an_error_that_says_so(parameters: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter, match="an image of 20 × 10 pixels"):
        run("crop", image(10, 20, 3, 0), **parameters)


@given(images(channels=(1, 3)), st.sampled_from([0, 100, 230, 254, 255]))
def test_trim_keeps_pillow_s_box_of_the_difference(pixels: Pixels, threshold: int) -> None:
    shown = pillow(pixels)
    plain = Image.new(shown.mode, shown.size, shown.getpixel((0, 0)))
    apart = ImageChops.difference(shown, plain).point(lambda level: 255 * (level > threshold))
    expected = shown.crop(box) if (box := apart.getbbox()) else shown
    assert same(run("trim", pixels, threshold=threshold), expected)


def test_trim_cuts_the_longest_images_that_decoders_accept() -> None:
    pixels = np.zeros((1, 2_000_000, 1), np.uint8)
    pixels[:, 1_500_000:] = 200
    assert run("trim", pixels).shape == (1, 500_000, 1)


@pytest.mark.parametrize("background", [None, "ff880000", "fff"])
def test_trim_takes_transparent_pixels_of_any_colour_as_equal(background: str | None) -> None:
    pixels = image(9, 9, 4, 0)
    pixels[..., 3] = 0
    pixels[2:5, 3:7, 3] = 40
    kept = pixels if background == "fff" else pixels[2:5, 3:7]
    assert np.array_equal(run("trim", pixels, background=background), kept)


@pytest.mark.parametrize("subject", [None, (200, 30, 30), (190, 150, 130), image(20, 30, 3, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_smart_centres_edges_colours_and_skin(subject: Pixels | None, turned: bool) -> None:
    pixels, first = np.full((60, 240, 3), 150, np.uint8), 90 if subject is None else 145
    if subject is not None:
        pixels[20:40, 160:190] = subject
    expected = pixels[:, first : first + 60]
    if turned:
        pixels, expected = (each.transpose(1, 0, 2) for each in (pixels, expected))
    size = {"width": 60, "height": 60, "fit": "cover", "gravity": "smart"}
    assert np.array_equal(run("resize", pixels, **size), expected)
    hidden = np.dstack([pixels, np.zeros(pixels.shape[:2], np.uint8)])
    found = parse_one("resize", size).measured(hidden)
    assert found == parse_one(
        "resize", size | {"gravity": "center", "focus_x": 0.5, "focus_y": 0.5}
    )


@given(
    images(),
    st.tuples(*[st.integers(0, 40)] * 4),
    st.sampled_from([mode for mode in PAD if mode != "constant"]),
)
def test_pad_is_numpy_s_by_the_names_of_here(
    pixels: Pixels, sides: tuple[int, int, int, int], mode: str
) -> None:
    left, top, right, bottom = sides
    found = run("pad", pixels, left=left, top=top, right=right, bottom=bottom, border_mode=mode)
    expected = np.pad(pixels, ((top, bottom), (left, right), (0, 0)), mode=PAD[mode])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("channels", "background", "expected"),
    [
        (1, "#00000000", [0]),
        (3, "#00000000", [0, 0, 0]),
        (4, "#00000000", [0, 0, 0, 0]),
        (1, "#0000ff", [29]),
        (3, "#f80", [255, 136, 0]),
        (4, "ff8800", [255, 136, 0, 255]),
        (4, "#ff880040", [255, 136, 0, 64]),
    ],
)
def test_a_constant_border_shows_the_background(
    channels: int, background: str, expected: list[int]
) -> None:
    pixels = image(3, 4, channels, 0)
    found = run("pad", pixels, left=2, bottom=1, background=background)
    assert found.shape == (4, 6, channels)
    assert np.array_equal(found[:3, 2:], pixels)
    assert (found[3] == expected).all()
    assert (found[:, :2] == expected).all()


def test_a_chain_knows_the_sizes_on_its_way() -> None:
    ops = chain(
        {"name": "crop", "left": 100, "width": 200},
        {"name": "resize", "width": 1000},
        {"name": "rotate90"},
        {"name": "pad", "left": 5, "top": 7},
        {"name": "resize", "height": 10, "width": 10, "fit": "fill"},
        {"name": "invert"},
    )
    assert ops.shape_after((300, 400, 4)) == (10, 10, 4)
    assert ops.most_pixels(300, 400) == 1007 * 1505
    assert chain({"name": "crop", "width": 1}).most_pixels(300, 400) == 300 * 400


@pytest.fixture(scope="module", autouse=True)
def small_stripes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "STRIPE", 200)
        yield


def test_a_deadline_ends_a_resize_between_stripes() -> None:
    pixels = np.zeros((100, 100, 3), np.uint8)
    with ending_at(Deadline(0.0)), pytest.raises(DeadlineExceeded):
        resampling.resized(pixels, (50, 50), METHODS["bilinear"], (0, 0, 100, 100))
