"""Numbers that filters upload, by which kernels multiply in place of dividing: always exact."""

import struct

import numpy as np
import pytest

from workers.filters.blur import BoxBlur
from workers.filters.threshold import AdaptiveThreshold


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
