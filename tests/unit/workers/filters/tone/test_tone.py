"""Filters of tones against Pillow and scikit-image, sample by sample."""

import numpy as np
import pytest
import skimage.exposure
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageOps

from models.domain.image import Pixels
from tests.unit.workers.filters.images import images, pillow, run, same

LEVELS = st.integers(0, 255)


@pytest.mark.parametrize("gamma", [0.05, 0.45, 1.0, 2.2, 20.0])
@pytest.mark.parametrize("gain", [0.3, 1.0, 3.0])
def test_gamma_is_scikit_image_s(gamma: float, gain: float) -> None:
    """Within the half-way cases, which they round to even."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    expected = skimage.exposure.adjust_gamma(ramp, gamma, gain).astype(int)
    difference = np.abs(run("gamma", ramp, gamma=gamma, gain=gain).astype(int) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02 or gain == 0.3


def test_levels_map_their_ends_and_clip_beyond() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)
    found = run("levels", ramp, in_black=50, in_white=150, out_black=10, out_white=210)[0, :, 0]
    assert found[:51].tolist() == [10] * 51
    assert found[150:].tolist() == [210] * 106
    assert found[50:151].tolist() == [10 + 2 * n for n in range(101)]
    backwards = run("levels", ramp, out_black=255, out_white=0)
    assert np.array_equal(backwards, 255 - ramp)


def test_the_gamma_of_levels_lightens_the_middle() -> None:
    middle = np.full((1, 1, 1), 128, np.uint8)
    assert run("levels", middle, gamma=2)[0, 0, 0] == int(255 * (128 / 255) ** 0.5 + 0.5)


@given(images(channels=(1, 3)), st.integers(1, 8))
def test_posterize_is_pillow_s(pixels: Pixels, bits: int) -> None:
    assert same(run("posterize", pixels, bits=bits), ImageOps.posterize(pillow(pixels), bits))


@given(images(channels=(1, 3)), st.integers(0, 256))
def test_solarize_is_pillow_s(pixels: Pixels, threshold: int) -> None:
    expected = ImageOps.solarize(pillow(pixels), threshold)
    assert same(run("solarize", pixels, threshold=threshold), expected)
