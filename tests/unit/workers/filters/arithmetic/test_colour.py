"""Point filters against Pillow, sample by sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from models.domain.image import Pixels
from tests.unit.workers.filters.images import images, pillow
from workers.filters.arithmetic.colour import blend, luma, lumas
from workers.filters.base import Filter
from workers.filters.colour import Grayscale, Saturation
from workers.filters.tone import Brightness, Contrast, Invert

FACTORS = st.one_of(st.sampled_from([0.0, 1.0, 8.0]), st.floats(0, 8, width=32))


def same(ours: Pixels, theirs: Image.Image) -> bool:
    return np.array_equal(ours, np.asarray(theirs).reshape(ours.shape))


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


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.5, 1.2, 1.3, 1.5, 2.0, 3.37, 7.77, 8.0, 10.0])
@pytest.mark.parametrize("width", [256, 251, 7])
def test_all_pairs_of_levels_blend_as_in_pillow(factor: float, width: int) -> None:
    """With and without an offset that lets OpenCV blend, in its vectors and in what is left."""
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


@pytest.mark.parametrize(
    "filter_",
    [Grayscale(), Invert(), Brightness(factor=2), Contrast(factor=2), Saturation(factor=2)],
)
@given(pixels=images(channels=(4,)))
def test_point_filters_leave_alpha_and_treat_colour_as_if_there_was_none(
    filter_: Grayscale, pixels: Pixels
) -> None:
    result = filter_.apply(pixels)
    assert np.array_equal(result[:, :, 3], pixels[:, :, 3])
    assert np.array_equal(result[:, :, :3], filter_.apply(np.ascontiguousarray(pixels[:, :, :3])))


@pytest.mark.parametrize("filter_", [Grayscale(amount=0), Brightness(), Contrast(), Saturation()])
@given(pixels=images())
def test_a_neutral_parameter_changes_nothing(filter_: Filter, pixels: Pixels) -> None:
    assert np.array_equal(filter_.apply(pixels), pixels)


def test_contrast_of_a_large_image_sums_without_overflow() -> None:
    pixels = np.full((4100, 4100, 1), 255, np.uint8)
    assert Contrast(factor=0).apply(pixels).min() == 255
