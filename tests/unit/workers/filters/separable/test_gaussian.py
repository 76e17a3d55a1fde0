"""What is made of Gaussian sums, against unbounded integers: levels at their bounds too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images, run
from tests.unit.workers.filters.sums import slow_sums
from workers.filters.separable import taps

Integers = NDArray[np.object_]
"""Python's, which have no bound."""


def gaussian(plane: Pixels, sigma: float) -> Integers:
    """Return the blurred plane in units of 2**-24."""
    rows = slow_sums(plane.astype(np.int64), taps(sigma, 22)[None], "replicate")
    middle = (rows + (1 << 13)) >> 14
    return slow_sums(middle, taps(sigma, 16)[:, None], "replicate").astype(object)


def sharpened(plane: Pixels, sigma: float, amount: float, threshold: int) -> Pixels:
    level = plane.astype(object) << 24
    difference = level - gaussian(plane, sigma)
    result = (level << 16) + difference * int(amount * 65536 + 0.5) + (1 << 39)
    whole = np.clip(result >> 40, 0, 255)
    return np.where(abs(difference) >= threshold << 24, whole, plane).astype(np.uint8)


def difference(plane: Pixels, one: float, other: float, scale: float) -> Pixels:
    found: Integers = abs(gaussian(plane, one) - gaussian(plane, other)) * int(scale * 65536 + 0.5)
    rounded: Integers = (found + (1 << 39)) >> 40
    return np.minimum(rounded, 255).astype(np.uint8)


CHEQUERED = (np.add.outer(np.arange(19), np.arange(23)) % 2 * 255).astype(np.uint8)[..., None]
DOT = np.where(np.arange(400).reshape(20, 20, 1) == 210, 255, 0).astype(np.uint8)
EXTREMES = [CHEQUERED, DOT, 255 - DOT, image(19, 23, 1, 0) // 128 * 255, image(9, 31, 1, 1)]


@pytest.mark.parametrize("pixels", EXTREMES)
@pytest.mark.parametrize("amount", [0.3, 1.5, 9.99999, 10.0])
@pytest.mark.parametrize("threshold", [0, 1, 60, 255])
def test_unsharp_mask_is_its_integer_formula(pixels: Pixels, amount: float, threshold: int) -> None:
    found = run("unsharp_mask", pixels, sigma=1.3, amount=amount, threshold=threshold)
    assert np.array_equal(found[..., 0], sharpened(pixels[..., 0], 1.3, amount, threshold))


@pytest.mark.parametrize("pixels", EXTREMES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 7.7, 100.0])
def test_dog_is_its_integer_formula(pixels: Pixels, scale: float) -> None:
    found = run("dog", pixels, sigma1=0.4, sigma2=3.1, scale=scale)
    assert np.array_equal(found[..., 0], difference(pixels[..., 0], 0.4, 3.1, scale))


@given(images(channels=(3,)), st.floats(0.1, 6), st.floats(0, 10), st.integers(0, 255))
def test_every_colour_is_sharpened_by_itself(
    pixels: Pixels, sigma: float, amount: float, threshold: int
) -> None:
    found = run("unsharp_mask", pixels, sigma=sigma, amount=amount, threshold=threshold)
    for n in range(3):
        assert np.array_equal(found[..., n], sharpened(pixels[..., n], sigma, amount, threshold))
