"""Non-local means against its definition, pixel by pixel, and against OpenCV."""

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from models.thread_priority import can_lower_priority, lower_priority
from tests.pictures import drawing
from tests.unit.workers.filters.images import image, images
from workers.filters.smoothing.nl_means import NlMeans, PatchDistances


def windows(pixels: Pixels, patch: int, search: int) -> NDArray[np.float64]:
    """Return the patches of every pixel's neighbours: (H, W, search, search, colours, patch,
    patch).
    """
    margin = patch // 2 + search // 2
    padded = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    patches = np.lib.stride_tricks.sliding_window_view(padded, (patch, patch), (0, 1))
    near = np.lib.stride_tricks.sliding_window_view(patches, (search, search), (0, 1))
    return near.transpose(0, 1, 5, 6, 2, 3, 4).astype(np.float64)


def slow_means(pixels: Pixels, h: float, patch: int, search: int) -> NDArray[np.float64]:
    """Compute the formula in float64."""
    near, middle = windows(pixels, patch, search), search // 2
    difference = near - near[:, :, middle : middle + 1, middle : middle + 1]
    weights = np.exp(-(difference**2).mean((4, 5, 6)) / h**2)
    levels = near[..., patch // 2, patch // 2]
    sums: NDArray[np.float64] = (weights[..., None] * levels).sum((2, 3))
    return np.asarray(sums / weights.sum((2, 3))[..., None], np.float64)


@settings(max_examples=60)
@given(
    images(channels=(1, 3)),
    st.one_of(st.sampled_from([1.0, 10.0, 100.0]), st.floats(1, 100)),
    st.sampled_from([1, 3, 7]),
    st.sampled_from([3, 5, 9]),
)
@example(image(1, 1, 3, 0), 1.0, 15, 21)
@example(image(1, 1, 1, 0), 100.0, 1, 3)
@example(image(1, 7, 3, 0), 30.0, 15, 21)
def test_nl_means_is_its_formula_within_one(
    pixels: Pixels, h: float, patch: int, search: int
) -> None:
    found = NlMeans(h=h, patch=patch, search=search).apply(pixels)
    assert np.abs(found - slow_means(pixels, h, patch, search)).max() < 1


@pytest.mark.parametrize(("h", "patch", "search"), [(10, 7, 21), (30, 3, 11), (3, 15, 7)])
@pytest.mark.parametrize("channels", [1, 3])
def test_nl_means_is_within_two_of_opencv_s(h: int, patch: int, search: int, channels: int) -> None:
    pixels = np.ascontiguousarray(np.asarray(drawing(300, 140))[..., :channels])
    theirs = cv2.fastNlMeansDenoising(pixels, None, h, patch, search).reshape(pixels.shape)
    found = NlMeans(h=h, patch=patch, search=search).apply(pixels)
    difference = np.abs(found.astype(int) - theirs)
    assert difference.max() <= 2
    assert difference.mean() < 0.1


def test_nl_means_of_several_tiles_is_that_of_each_place() -> None:
    pixels = np.asarray(drawing(600, 290))
    whole = NlMeans(patch=5, search=9).apply(pixels)
    part = NlMeans(patch=5, search=9).apply(np.ascontiguousarray(pixels[100:200, 200:400]))
    assert np.array_equal(whole[110:190, 210:390], part[10:-10, 10:-10])


def test_nl_means_keeps_alpha_and_ignores_it() -> None:
    pixels = image(17, 23, 4, 0)
    filter_ = NlMeans(h=60, patch=3, search=7)
    result = filter_.apply(pixels)
    assert np.array_equal(result[..., 3], pixels[..., 3])
    opaque = np.ascontiguousarray(pixels[..., :3])
    assert np.array_equal(result[..., :3], filter_.apply(opaque))


@pytest.mark.parametrize("shape", [(30_000, 1, 1), (1, 30_000, 3), (900, 900, 1)])
def test_memory_of_nl_means_is_bounded(shape: tuple[int, int, int]) -> None:
    pixels = image(*shape, 0)
    tracemalloc.start()
    NlMeans(patch=15, search=5).apply(pixels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * pixels.nbytes + (16 << 20)


def side_by_side(pixels: Pixels) -> None:
    """Filter the pixels on two threads at the same time."""
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(NlMeans().apply, pixels) for _ in range(2)]:
            each.result()


def test_small_images_are_computed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Lock()

    def tile(_self: PatchDistances, planes: list[Pixels]) -> Pixels:
        assert inside.acquire(blocking=False), "another thread is inside"
        time.sleep(0.05)
        inside.release()
        return np.zeros((64, 64, len(planes)), np.uint8)

    monkeypatch.setattr(PatchDistances, "_tile", tile)
    side_by_side(np.zeros((64, 64, 3), np.uint8))


@pytest.mark.skipif(not can_lower_priority(), reason="the system has no priorities of threads")
def test_small_images_do_not_wait_for_one_of_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = threading.Barrier(2, timeout=60)

    def tile(_self: PatchDistances, planes: list[Pixels]) -> Pixels:
        together.wait()  # raises BrokenBarrierError unless both are here
        return np.zeros((64, 64, len(planes)), np.uint8)

    monkeypatch.setattr(PatchDistances, "_tile", tile)
    pixels = np.zeros((64, 64, 3), np.uint8)
    with ThreadPoolExecutor(1, initializer=lower_priority) as background:
        behind = background.submit(NlMeans().apply, pixels)
        with ThreadPoolExecutor(1) as usual:
            usual.submit(NlMeans().apply, pixels).result()
        behind.result()


def test_large_images_are_computed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=60)

    def tile(_self: PatchDistances, planes: list[Pixels]) -> Pixels:
        together.wait()  # raises BrokenBarrierError unless both are here
        return np.zeros((200, 200, len(planes)), np.uint8)

    monkeypatch.setattr(PatchDistances, "_tile", tile)
    side_by_side(np.zeros((200, 200, 3), np.uint8))
