"""Convolve against OpenCV, SciPy and integer loops."""

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given
from hypothesis import strategies as st

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images, run
from tests.unit.workers.filters.sums import PAD, slow_sums
from workers.filters.registry import parse_chain, parse_one

OPENCV = {
    "replicate": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "constant": cv2.BORDER_CONSTANT,
}
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
def test_convolve_s_borders_are_scipy_s_under_our_names(
    border: str, sides: tuple[int, int], channels: int, seed: int
) -> None:
    pixels = image(37, 41, channels, seed)  # SciPy itself errs where a kernel is the larger one
    kernel = np.random.default_rng(seed).integers(-9, 10, sides)
    found = run("convolve", pixels, kernel=kernel.tolist(), bias=100, border_mode=border)
    source = pixels.astype(np.float64)
    expected = scipy.ndimage.correlate(source, kernel[..., None], mode=SCIPY[border]) + 100
    assert np.array_equal(found, np.clip(expected, 0, 255))


@pytest.mark.parametrize("border", OPENCV)
@pytest.mark.parametrize("side", [3, 11])
def test_convolve_with_whole_numbers_is_opencv_s_own_call(border: str, side: int) -> None:
    pixels = np.asarray(drawing(131, 97))
    kernel = np.random.default_rng(side).integers(-3, 4, (side, side))
    parameters = {"kernel": kernel.tolist(), "divisor": 16, "bias": 0.01}
    found = run("convolve", pixels, **parameters, border_mode=border)
    exact = cv2.filter2D(pixels, -1, kernel / 16, delta=0.01, borderType=OPENCV[border])
    assert np.array_equal(found, exact)


@given(images(channels=(1, 3)), st.integers(0, 99))
def test_convolve_with_whole_numbers_is_exact_and_halves_go_up(pixels: Pixels, seed: int) -> None:
    kernel = np.random.default_rng(seed).integers(-9, 10, (3, 5))
    found = run("convolve", pixels, kernel=kernel.tolist(), divisor=2, bias=1)
    for n in range(pixels.shape[2]):
        sums = slow_sums(pixels[..., n].astype(np.int64), kernel, "replicate")
        assert np.array_equal(found[..., n], np.clip((sums + 3) // 2, 0, 255))


def test_a_kernel_may_be_text_in_a_query() -> None:
    text = parse_one("convolve", {"kernel": "0,-1,0;-1,5.5,-1;0,-1,0"})
    kernel = [[0, -1, 0], [-1, 5.5, -1], [0, -1, 0]]
    assert text == parse_chain([{"name": "convolve", "kernel": kernel}])[0]


@pytest.mark.parametrize(
    "kernel",
    [
        [],
        [[]],
        [1, 2],
        [[1, 2], [3]],
        [[1] * 32],
        [[1]] * 32,
        [[1001]],
        [[float("nan")]],
        [["1"]],
        [[True]],
        "1,2;3",
        "1;;2",
        "x",
        3,
        None,
    ],
)
def test_a_wrong_kernel_is_refused_with_what_is_needed(kernel: object) -> None:
    with pytest.raises(
        InvalidParameter, match="a list of 1 to 31 equally long rows of 1 to 31 numbers"
    ):
        parse_chain([{"name": "convolve", "kernel": kernel}])


def test_convolve_correlates_and_leaves_alpha() -> None:
    pixels = image(5, 6, 4, 0)
    found = run("convolve", pixels, kernel=[[0, 0, 1]])
    assert np.array_equal(found[:, :-1, :3], pixels[:, 1:, :3])
    assert np.array_equal(found[..., 3], pixels[..., 3])
