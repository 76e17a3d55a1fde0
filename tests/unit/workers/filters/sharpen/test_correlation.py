"""Motion blur and convolve against SciPy, OpenCV and integer loops."""

import tracemalloc

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images, run
from tests.unit.workers.filters.sums import PAD, slow_sums
from workers.filters.arithmetic.sums import Border, correlated, correlated_bytes, fits_single
from workers.filters.base import Filter
from workers.filters.blur import MotionBlur
from workers.filters.sharpen import Convolve

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


def test_sums_over_premultiplied_planes_are_exact() -> None:
    random = np.random.default_rng(0)
    planes = random.integers(0, 65026, (200, 530, 1)).astype(np.uint16)
    weights = MotionBlur(length=101, angle=30).fixed()
    expected = slow_sums(planes[..., 0].astype(np.int64), weights, "replicate")
    for place, sums in correlated(planes, weights, "replicate"):
        assert np.array_equal(sums[..., 0], expected[place])


@pytest.mark.parametrize("border", PAD)
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (531, 290)])
@pytest.mark.parametrize("angle", [30.0, -45.0])
def test_a_line_of_few_weights_is_added_up_exactly(
    border: Border, size: tuple[int, int], angle: float
) -> None:
    weights = MotionBlur(length=61, angle=angle).fixed()
    weights[0, :20] = -2
    assert fits_single(weights, 15, 1 << 14)
    pixels = image(*size, 1, 4)
    expected = slow_sums(pixels[..., 0].astype(np.int64), weights, border)
    found = correlated_bytes(pixels, weights, border, 15, 1 << 14)
    assert np.array_equal(found[..., 0], np.clip((expected + (1 << 14)) >> 15, 0, 255))


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


@pytest.mark.parametrize(("length", "angle"), [(15, 0.0), (15, 45.0), (90, 20.0), (255, -70.0)])
def test_motion_blur_is_opencv_s_filter2d_within_one(length: int, angle: float) -> None:
    pixels = image(120, 331, 3, 5)
    weights = (MotionBlur(length=length, angle=angle).fixed() / (1 << 15)).astype(np.float64)
    wide = pixels.astype(np.float64)
    expected = cv2.filter2D(wide, cv2.CV_64F, weights, borderType=cv2.BORDER_REPLICATE)
    found = run("motion_blur", pixels, length=length, angle=angle)
    assert np.abs(found - expected).max() < 1


def test_motion_blur_of_0_degrees_is_a_mean_of_the_row_and_of_90_of_the_column() -> None:
    pixels = image(40, 50, 3, 0)
    wide = pixels.astype(np.float64)
    for angle, axis in ((0, 1), (90, 0), (180, 1), (-90, 0)):
        expected = scipy.ndimage.uniform_filter1d(wide, 9, axis=axis, mode="nearest")
        found = run("motion_blur", pixels, length=9, angle=angle)
        assert np.abs(found - expected).max() < 1


def test_motion_blur_turns_counterclockwise() -> None:
    spot = np.zeros((9, 9, 1), np.uint8)
    spot[4, 4] = 255
    found = run("motion_blur", spot, length=7, angle=45)[..., 0]
    assert found[2, 6] > 0
    assert found[6, 2] > 0
    assert found[2, 2] == found[6, 6] == 0


@pytest.mark.slow
@pytest.mark.parametrize("filter_", [Convolve(kernel=((0.1,) * 31,) * 31), MotionBlur(length=255)])
@pytest.mark.parametrize("size", [(90_000, 2), (2, 90_000), (1400, 1400)])
def test_memory_of_a_correlation_is_bounded(filter_: Filter, size: tuple[int, int]) -> None:
    pixels = np.zeros((*size, 4), np.uint8)
    tracemalloc.start()
    filter_.apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * pixels.nbytes + (150 << 20)
