"""Sharpen against Pillow."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageEnhance

from models.domain.image import Pixels
from tests.unit.workers.filters.images import images, pillow, run, same


@given(images(), st.sampled_from([0.0, 1.0, 2.0, 10.0]))
def test_sharpen_is_pillow_s_and_leaves_alpha(pixels: Pixels, factor: float) -> None:
    found = run("sharpen", pixels, factor=factor)
    colour = np.ascontiguousarray(pixels[:, :, :3])
    expected = ImageEnhance.Sharpness(pillow(colour)).enhance(factor)
    assert same(np.ascontiguousarray(found[:, :, :3]), expected)
    assert np.array_equal(found[:, :, 3:], pixels[:, :, 3:])
