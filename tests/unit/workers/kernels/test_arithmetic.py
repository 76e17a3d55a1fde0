"""Arithmetic that kernels use instead of slower operations, for every number that occurs."""

import struct

import numpy as np
import pytest

from workers.filters.blur import BoxBlur
from workers.filters.threshold import AdaptiveThreshold


@pytest.mark.parametrize("error", [-(2.0**-22), 0, 2.0**-22])
def test_one_step_of_newton_rounds_the_root_of_every_gradient(error: float) -> None:
    squares = np.arange(2 * 1020**2 + 1, dtype=np.float64)
    single = np.float32
    near = 1 / np.sqrt(np.maximum(squares, 0.5))
    inverse = (near * (1 + error)).astype(single)
    root = (squares * inverse).astype(single)
    rest = (squares - root.astype(np.float64) ** 2).astype(single)
    half = (0.5 * inverse).astype(single)
    root = (rest.astype(np.float64) * half + root).astype(single)
    assert np.array_equal(np.rint(root), np.rint(np.sqrt(squares)))


def test_a_thirteenth_in_sixteen_bits_divides_every_sum_of_smooth() -> None:
    sums = np.arange(255 * 13 + 7)
    assert np.array_equal(sums * 5042 >> 16, sums // 13)


def test_the_multiplication_that_divides_by_an_area_is_exact_for_every_sum() -> None:
    for radius in range(1, 25):
        threshold = AdaptiveThreshold(block=2 * radius + 1)
        last, inverse = struct.unpack_from("<2I", threshold.device_data((9, 9, 3)))
        area = threshold.block**2
        sums = np.arange(255 * area + 1, dtype=np.uint64)
        means = (2 * sums + last) * inverse >> 32
        assert np.array_equal(means, (2 * sums + area) // (2 * area))


@pytest.mark.slow
def test_the_multiplication_that_divides_running_sums_is_exact_at_every_step() -> None:
    for radius in range(501):
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
