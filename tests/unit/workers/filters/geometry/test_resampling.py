"""Resizing in stripes gives the bytes of Pillow's resize of the whole image, in little memory."""

import tracemalloc
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded
from models.domain.image import Pixels
from tests.unit.workers.filters.images import images, pillow
from workers.filters import geometry as resampling
from workers.filters.geometry import Resize
from workers.filters.interruption import ending_at

METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIDES = st.integers(1, 60)


@pytest.fixture(scope="module", autouse=True)
def small_stripes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "STRIPE", 200)
        yield


@given(images(), SIDES, SIDES, st.sampled_from(list(METHODS)), st.data())
def test_stripes_give_pillow_s_bytes(
    pixels: Pixels, width: int, height: int, method: str, data: st.DataObject
) -> None:
    there = pixels.shape[1], pixels.shape[0]
    width, height = data.draw(st.sampled_from([(width, height), (there[0], height), there]))
    right, bottom = map(float, there)
    left = data.draw(st.floats(0, right - 1, width=32))
    top = data.draw(st.floats(0, bottom - 1, width=32))
    box = data.draw(st.sampled_from([(0.0, 0.0, right, bottom), (left, top, right, bottom)]))
    expected = np.asarray(pillow(pixels).resize((width, height), METHODS[method], box))
    found = resampling.resized(pixels, (height, width), METHODS[method], box)
    assert np.array_equal(found, expected.reshape(height, width, -1))


@pytest.mark.parametrize("fit", ["contain", "cover", "fill"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_large_images_are_resized_in_stripes_with_the_same_bytes(
    channels: int, fit: Literal["contain", "cover", "fill"], monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (61, 83, channels), np.uint8)
    for width, height in ((20, 40), (200, 30), (83, 90)):
        filter_ = Resize(width=width, height=height, fit=fit)
        whole = filter_.apply(pixels)
        monkeypatch.setattr(resampling, "LARGE", 0)
        striped = filter_.apply(pixels)
        monkeypatch.undo()
        assert np.array_equal(striped, whole)


def test_enlarging_takes_the_memory_of_its_result_and_no_pictures_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resampling, "STRIPE", 1 << 16)
    filter_ = Resize(width=3000, height=3000)
    pixels = np.zeros((30, 30, 3), np.uint8)
    tracemalloc.start()
    try:
        result = filter_.apply(pixels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * result.nbytes
    assert peak <= filter_.memory(pixels.shape) <= 2 * result.nbytes


def test_a_deadline_ends_a_resize_between_stripes() -> None:
    pixels = np.zeros((100, 100, 3), np.uint8)
    with ending_at(Deadline(0.0)), pytest.raises(DeadlineExceeded):
        resampling.resized(pixels, (50, 50), METHODS["bilinear"], (0, 0, 100, 100))
