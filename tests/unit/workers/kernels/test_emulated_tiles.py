"""Small windows in one pass: every reach, incomplete tiles, and the bounds of the arithmetic."""

import struct

import numpy as np
import pytest

from tests.unit.workers.kernels.specified import assert_equal, image
from workers.filters.blur import BoxBlur, GaussianBlur
from workers.filters.registry import parse_one
from workers.filters.separable import separable_weights
from workers.filters.sharpen import UnsharpMask
from workers.filters.threshold import AdaptiveThreshold

pytestmark = pytest.mark.slow

SHAPES = [(70, 131, 3), (33, 65, 1), (1, 200, 3), (90, 64, 4), (9, 2, 3)]


@pytest.mark.parametrize("sigma", [0.24, 0.25, 0.5, 1, 2.12, 2.13, 3.7, 6.12, 6.13, 10, 26.1, 26.2])
def test_blurs_of_every_reach_are_exact(sigma: float) -> None:
    random = np.random.default_rng(11)
    images = [image(random, *shape) for shape in SHAPES]
    images += [np.full((70, 66, 3), 255, np.uint8)]
    assert_equal([GaussianBlur(sigma=sigma, sigma_y=None)] * 6, images)
    assert_equal([GaussianBlur(sigma=sigma, sigma_y=0.7)] * 6, images)


@pytest.mark.parametrize("sigma", [0.3, 2, 4])
@pytest.mark.parametrize(("amount", "threshold"), [(10, 0), (0.7, 9), (1.5, 255)])
def test_unsharp_masks_of_every_reach_are_exact(
    sigma: float, amount: float, threshold: int
) -> None:
    random = np.random.default_rng(12)
    mask = UnsharpMask(sigma=sigma, amount=amount, threshold=threshold)
    assert_equal([mask] * 5, [image(random, *shape) for shape in SHAPES])


@pytest.mark.parametrize("radius", range(1, 25))
def test_the_multiplication_that_divides_by_an_area_is_exact_for_every_sum(radius: int) -> None:
    threshold = AdaptiveThreshold(block=2 * radius + 1)
    last, inverse = struct.unpack_from("<2I", threshold.device_data((9, 9, 3)))
    area = threshold.block**2
    sums = np.arange(255 * area + 1, dtype=np.uint64)
    means = (2 * sums + last) * inverse >> 32
    assert np.array_equal(means, (2 * sums + area) // (2 * area))


@pytest.mark.parametrize("radius", [0, 1, 7, 8, 25, 26, 31, 32, 64, 191, 192, 255, 256, 500])
def test_running_sums_of_every_reach_are_exact(radius: int) -> None:
    random = np.random.default_rng(radius)
    shapes = [(70, 131, 3), (365, 4, 3), (3, 1030, 1), (7, 3, 3), (5, 519, 3), (40, 33, 4)]
    images = [image(random, *shape) for shape in shapes] + [np.full((40, 70, 3), 255, np.uint8)]
    assert_equal([parse_one("box_blur", {"radius": radius})] * 7, images)


@pytest.mark.parametrize("radius", range(501))
def test_the_multiplication_that_divides_running_sums_is_exact_at_every_step(radius: int) -> None:
    area, inverse = struct.unpack_from("<4xiQ", BoxBlur(radius=radius).device_data((9, 9, 3)))
    shift, more = 8 * ((radius >= 8) + (radius >= 128)), radius == 0
    narrow = (inverse >> 31 - shift) + 1 - 2 * more
    assert narrow < 1 << 32
    for mean in range(1, 256):  # it never falls from one sum to the next
        least = mean * area + more
        assert (least * narrow >> 32 + shift, (least - 1) * narrow >> 32 + shift) == (
            mean,
            mean - 1,
        )
    assert (255 * area + area // 2 + more) * narrow >> 32 + shift == 255


def test_weights_that_do_not_fit_their_bytes_are_refused() -> None:
    with pytest.raises(AssertionError):
        separable_weights(np.array([0, 256, 0]), np.array([1]), 8, (1, 1))


@pytest.mark.parametrize("op", ["erode", "close", "gradient"])
@pytest.mark.parametrize(
    ("size", "iterations"), [(3, 1), (5, 1), (8, 2), (17, 1), (4, 8), (25, 1), (26, 1)]
)
def test_rectangles_in_tiles_are_exact(op: str, size: int, iterations: int) -> None:
    random = np.random.default_rng(size)
    shapes = [(130, 70, 3), (65, 129, 4), (67, 131, 1), (3, 200, 3), (1, 1, 1), (66, 2, 3)]
    chosen = {"op": op, "size": size, "iterations": iterations}
    images = [image(random, *shape) for shape in shapes]
    assert_equal([parse_one("morphology", chosen)] * 6, images)
