"""Correlations and edges against OpenCV, SciPy, Pillow and integer loops."""

import itertools
from collections.abc import Callable

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter

from models.domain.image import Pixels
from tests.unit.workers.filters.images import PAD, image, images, pillow, run, same, slow_sums
from workers.filters.arithmetic.colour import luma
from workers.filters.arithmetic.sums import Border, correlated
from workers.filters.blur import MotionBlur
from workers.filters.sharpen import Preset

ANGLES = st.one_of(st.sampled_from([-180, -90, -45, 0, 90, 180]), st.floats(-180, 180))


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (7, 7), (5, 10), (8, 7), (31, 31), (2, 30)])
@pytest.mark.parametrize("border", PAD)
def test_sums_are_exact_directly_and_through_a_transform(
    rows: int, columns: int, border: Border
) -> None:
    random, limit = np.random.default_rng(rows), (1 << 30) // (rows * columns)
    weights = random.integers(-limit, limit, (rows, columns))
    pixels = np.where(image(41, 700, 1, 1) > 90, 255, image(41, 700, 1, 2)).astype(np.uint8)
    expected = slow_sums(pixels[..., 0].astype(np.int64), weights, border)
    for place, sums in correlated(pixels, weights, border):
        assert np.array_equal(sums[..., 0], expected[place])


def turned_line(length: int, angle: float) -> NDArray[np.float64]:
    """Return a lying line that SciPy has turned counterclockwise with bilinear interpolation."""
    side = 2 * (length // 2) + 3
    line = np.zeros((side, side))
    middle = side // 2
    reach = (length - 1) // 2
    line[middle, middle - reach : middle + reach + 1] = 1
    offsets = np.indices((side, side)) - middle
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    down, right = offsets
    at = (down * cos + right * sin + middle, right * cos - down * sin + middle)
    turned = scipy.ndimage.map_coordinates(line, at, order=1, mode="constant")
    return np.asarray(turned[1:-1, 1:-1] / turned[1:-1, 1:-1].sum())


@given(st.integers(1, 30).map(lambda n: 2 * n + 1), ANGLES)
def test_the_weights_of_motion_blur_are_a_line_that_was_turned(length: int, angle: float) -> None:
    weights = MotionBlur(length=length, angle=angle).fixed()
    assert weights.sum() == 1 << 15
    assert weights.min() >= 0
    assert np.array_equal(weights, weights[::-1, ::-1])
    expected = turned_line(length, angle)
    spare = [(n - m) // 2 for n, m in zip(expected.shape, weights.shape, strict=True)]
    padded = np.pad(weights / (1 << 15), [(n, n) for n in spare])
    assert np.abs(padded - expected).max() < 1.01 / (1 << 15)


@given(images(), st.integers(3, 40), ANGLES)
@example(image(200, 530, 1, 4), 101, 30.0)
@example(image(200, 530, 4, 4), 101, 30.0)
@example(image(7, 300, 1, 4), 61, -45.0)
def test_motion_blur_is_its_integer_definition(pixels: Pixels, length: int, angle: float) -> None:
    weights = MotionBlur(length=length, angle=angle).fixed()
    found = run("motion_blur", pixels, length=length, angle=angle)
    wide = pixels.astype(np.int64)
    if pixels.shape[2] < 4:
        for n in range(pixels.shape[2]):
            sums = slow_sums(wide[..., n], weights, "replicate")
            assert np.array_equal(found[..., n], (sums + (1 << 14)) >> 15)
        return
    weight = slow_sums(255 * wide[..., 3], weights, "replicate")
    visible = (weight // 255 + (1 << 14)) >> 15
    assert np.array_equal(found[..., 3], visible)
    for n in range(3):
        sums = slow_sums(wide[..., n] * wide[..., 3], weights, "replicate")
        straight = (510 * sums + weight) // np.maximum(2 * weight, 1)
        assert np.array_equal(found[..., n], np.where(visible > 0, straight, 0))


SIDES = st.sampled_from([1, 2, 3, 4, 7, 11, 31])
SCIPY = {"replicate": "nearest", "reflect": "reflect", "mirror": "mirror", "wrap": "wrap"}


@given(
    images(channels=(1, 3)),
    st.tuples(SIDES, SIDES, st.integers(0, 99)),
    st.sampled_from([0.01, 0.1, 1.0, 7.0, 2048.0]),
    st.sampled_from([0.01, 0.3, 1.0, 9.0, 1e6]),
    st.one_of(st.sampled_from([-255.0, 0.0, 0.5, 255.0]), st.floats(-255, 255)),
    st.sampled_from(list(PAD)),
)
def test_convolve_is_opencv_s_filter2d_within_one(
    pixels: Pixels,
    sides_and_seed: tuple[int, int, int],
    total: float,
    divisor: float,
    bias: float,
    border: str,
) -> None:
    rows, columns, seed = sides_and_seed
    kernel = np.random.default_rng(seed).uniform(-1, 1, (rows, columns))
    kernel *= total / np.abs(kernel).sum()
    scaled = np.clip(kernel * divisor, -1000, 1000)
    kernel = scaled / divisor
    parameters = {"kernel": scaled.tolist(), "divisor": divisor, "bias": bias}
    found = run("convolve", pixels, **parameters, border_mode=border)
    up, left = rows // 2, columns // 2
    margins = ((up, rows - 1 - up), (left, columns - 1 - left), (0, 0))
    padded = np.pad(pixels, margins, mode=PAD[border])
    theirs = cv2.filter2D(padded.astype(np.float64), cv2.CV_64F, kernel, delta=bias)
    theirs = theirs.reshape(padded.shape)[up : up + len(pixels), left : left + pixels.shape[1]]
    assert np.abs(found - np.clip(np.floor(theirs + 0.5), 0, 255)).max() <= 1


@pytest.mark.parametrize("border", SCIPY)
@given(sides=st.tuples(SIDES, SIDES), channels=st.sampled_from([1, 3]), seed=st.integers(0, 99))
def test_convolve_is_exact_for_whole_numbers_with_scipy_s_borders_and_halves_go_up(
    border: str, sides: tuple[int, int], channels: int, seed: int
) -> None:
    pixels = image(37, 41, channels, seed)  # SciPy itself errs where a kernel is the larger one
    kernel = np.random.default_rng(seed).integers(-9, 10, sides)
    parameters = {"kernel": kernel.tolist(), "divisor": 2, "bias": 100, "border_mode": border}
    sums = scipy.ndimage.correlate(pixels.astype(int), kernel[..., None], mode=SCIPY[border])
    assert np.array_equal(run("convolve", pixels, **parameters), np.clip((sums + 201) // 2, 0, 255))


@given(images(), st.sampled_from([0.0, 1.0, 2.0, 10.0]))
def test_sharpen_is_pillow_s_and_leaves_alpha(pixels: Pixels, factor: float) -> None:
    found = run("sharpen", pixels, factor=factor)
    colour = np.ascontiguousarray(pixels[:, :, :3])
    expected = ImageEnhance.Sharpness(pillow(colour)).enhance(factor)
    assert same(np.ascontiguousarray(found[:, :, :3]), expected)
    assert np.array_equal(found[:, :, 3:], pixels[:, :, 3:])


KERNELS = Preset.model_json_schema()["properties"]["kernel"]["enum"]
SCHARR = np.array([[-3, 0, 3], [-10, 0, 10], [-3, 0, 3]])


def scharr(grey: NDArray[np.int64], axis: int, mode: str) -> NDArray[np.int64]:
    weights = SCHARR if axis == 1 else SCHARR.T
    return np.asarray(scipy.ndimage.correlate(grey, weights, mode=mode))


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("sobel", scipy.ndimage.sobel),
        ("scharr", scharr),
        ("prewitt", scipy.ndimage.prewitt),
    ],
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


def test_a_preset_is_pillow_s_inside_the_margin() -> None:
    for channels, kernel in itertools.product([1, 3], KERNELS):
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
