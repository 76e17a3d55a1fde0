"""Thresholds against OpenCV and two groups of levels."""

import cv2
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.domain.image import Pixels
from tests.unit.workers.filters.images import images, run
from workers.filters.arithmetic.colour import luma

LEVELS = st.integers(0, 255)


@given(images(), LEVELS, LEVELS)
def test_threshold_is_opencv_s_on_the_luma(pixels: Pixels, value: int, light: int) -> None:
    _, expected = cv2.threshold(luma(pixels).copy(), value, light, cv2.THRESH_BINARY)
    found = run("threshold", pixels, value=value, max=light)
    for channel in range(min(3, pixels.shape[2])):
        assert np.array_equal(found[:, :, channel], expected.reshape(pixels.shape[:2]))
    assert np.array_equal(found[:, :, 3:], pixels[:, :, 3:])


def test_otsu_parts_two_groups_of_tones() -> None:
    tones = np.random.default_rng(0).normal(60, 10, (50, 80))
    tones[:, 40:] += 120
    pixels = np.clip(tones, 0, 255).astype(np.uint8)[..., None]
    found = run("otsu", pixels)[..., 0]
    assert (found[:, :40] == 0).all()
    assert (found[:, 40:] == 255).all()
