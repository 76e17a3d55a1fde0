"""Erosions and dilations in tiles give the bytes of OpenCV, and end at the deadline."""

from time import monotonic

import cv2
import numpy as np
import pytest

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded
from workers.filters import morphological as module
from workers.filters.interruption import ending_at
from workers.filters.morphological import by_tiles
from workers.filters.registry import parse_chain

_OPERATIONS = {
    "erode": cv2.MORPH_ERODE,
    "dilate": cv2.MORPH_DILATE,
    "open": cv2.MORPH_OPEN,
    "close": cv2.MORPH_CLOSE,
    "gradient": cv2.MORPH_GRADIENT,
    "tophat": cv2.MORPH_TOPHAT,
    "blackhat": cv2.MORPH_BLACKHAT,
}
_SHAPES = (cv2.MORPH_CROSS, cv2.MORPH_ELLIPSE, cv2.MORPH_RECT)


def noise(height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)


@pytest.mark.parametrize("work", [1, 50_000, module.WORK])
@pytest.mark.parametrize(("size", "iterations"), [(3, 4), (4, 2), (9, 1), (12, 3), (31, 2)])
@pytest.mark.parametrize("op", _OPERATIONS)
def test_tiles_of_any_size_give_the_bytes_of_opencv(
    monkeypatch: pytest.MonkeyPatch, op: str, size: int, iterations: int, work: int
) -> None:
    monkeypatch.setattr(module, "WORK", work)
    for shape in _SHAPES:
        kernel = np.asarray(cv2.getStructuringElement(shape, (size, size)), np.uint8)
        for pixels in (noise(40, 70, 3), noise(1, 90, 1), noise(90, 1, 4)):
            before = pixels.copy()
            expected = cv2.morphologyEx(pixels, _OPERATIONS[op], kernel, iterations=iterations)
            found = by_tiles(pixels, op, kernel, iterations)
            assert np.array_equal(found, expected.reshape(pixels.shape))
            assert np.array_equal(pixels, before)


@pytest.mark.parametrize("shape", ["rect", "ellipse"])
def test_the_filter_looks_at_the_deadline_in_each_repetition(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(module, "stop_if_late", lambda: looks.append(1))
    options = {"op": "open", "shape": shape, "size": 31, "iterations": 16}
    (step,) = parse_chain([{"name": "morphology", **options}])
    step.apply(noise(20, 20, 3))
    assert len(looks) == 32


def test_a_deadline_ends_the_work_between_two_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = np.ones((3, 3), np.uint8)
    calls: list[int] = []

    def once(*_: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise DeadlineExceeded("late")

    monkeypatch.setattr(module, "WORK", 9 * 100)
    monkeypatch.setattr(module, "stop_if_late", once)
    with pytest.raises(DeadlineExceeded):
        by_tiles(noise(40, 40, 1), "erode", kernel, 16)
    assert len(calls) == 3


def test_an_image_whose_deadline_has_passed_is_not_filtered() -> None:
    kernel = np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (201, 201)), np.uint8)
    with ending_at(Deadline(monotonic() - 1)), pytest.raises(DeadlineExceeded):
        by_tiles(noise(400, 400, 3), "blackhat", kernel, 16)
