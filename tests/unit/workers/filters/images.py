"""Random images for filter tests: every channel count, sizes from 1 × 1, primes among them."""

import numpy as np
from hypothesis import strategies as st

from models.domain.image import Pixels

SIZES = st.sampled_from([(1, 1), (1, 7), (13, 1), (2, 2), (5, 3), (17, 23), (31, 8)])


def image(height: int, width: int, channels: int, seed: int) -> Pixels:
    """Noise of full range."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, channels), np.uint8)


@st.composite
def images(draw: st.DrawFn, channels: tuple[int, ...] = (1, 3, 4)) -> Pixels:
    """Any image."""
    return image(*draw(SIZES), draw(st.sampled_from(channels)), draw(st.integers(0, 10**6)))
