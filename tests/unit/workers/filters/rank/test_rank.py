"""Rank against SciPy and Pillow."""

import tracemalloc

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images
from workers.filters.rank import Rank

PERCENTILES = st.one_of(st.sampled_from([0.0, 50.0, 99.999, 100.0]), st.floats(0, 100))


@given(images(), st.sampled_from([3, 5, 7, 9, 11, 21, 101]), PERCENTILES)
@example(image(1, 1, 4, 0), 101, 100.0)
def test_rank_is_scipy_s_percentile_filter(pixels: Pixels, size: int, percentile: float) -> None:
    expected = scipy.ndimage.percentile_filter(
        pixels, percentile, size=(size, size, 1), mode="nearest"
    )
    assert np.array_equal(Rank(size=size, percentile=percentile).apply(pixels), expected)


@pytest.mark.parametrize("size", [3, 9, pytest.param(31, marks=pytest.mark.slow)])
@pytest.mark.parametrize("percentile", [0, 20, 50, 100])
def test_rank_is_pillow_s_rank_filter(size: int, percentile: float) -> None:
    picture = drawing(331, 263)
    rank = min(int(size * size * percentile / 100), size * size - 1)
    expected = np.asarray(picture.filter(ImageFilter.RankFilter(size, rank)))
    found = Rank(size=size, percentile=percentile).apply(np.asarray(picture))
    assert np.array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("size", [9, 101])
@pytest.mark.parametrize("shape", [(200_000, 1, 1), (1, 200_000, 4), (700, 700, 3)])
def test_memory_of_a_rank_is_bounded(size: int, shape: tuple[int, int, int]) -> None:
    pixels = np.zeros(shape, np.uint8)
    filter_ = Rank(size=size, percentile=30)
    filter_.apply(pixels[:9, :9])
    tracemalloc.start()
    filter_.apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * pixels.nbytes + (64 << 20)


def test_rank_by_default_is_the_median() -> None:
    picture = Image.fromarray(image(50, 60, 3, 0))
    expected = np.asarray(picture.filter(ImageFilter.MedianFilter(3)))
    assert np.array_equal(Rank().apply(np.asarray(picture)), expected)
