"""Random images for filter tests (every channel count, sizes from 1 × 1, primes among them), and a
filter run by its name, and correlation by the book.
"""

from typing import Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.registry import parse_one

SIZES = st.sampled_from([(1, 1), (1, 7), (13, 1), (2, 2), (5, 3), (17, 23), (31, 8)])


def image(height: int, width: int, channels: int, seed: int) -> Pixels:
    """Return noise of full range, uint8 (H, W, C)."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, channels), np.uint8)


@st.composite
def images(draw: st.DrawFn, channels: tuple[int, ...] = (1, 3, 4)) -> Pixels:
    """Return a strategy for images of any shape."""
    return image(*draw(SIZES), draw(st.sampled_from(channels)), draw(st.integers(0, 10**6)))


def run(name: str, pixels: Pixels, **parameters: object) -> Pixels:
    """Return what the filter of this name and these parameters makes of an image."""
    return parse_one(name, parameters).apply(pixels)


def pillow(pixels: Pixels) -> Image.Image:
    """Return uint8 (H, W, C) as an image of Pillow."""
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def same(ours: Pixels, theirs: object) -> bool:
    """Return whether two images have equal samples, whatever the axes of the second."""
    return np.array_equal(ours, np.asarray(theirs).reshape(ours.shape))


PAD: dict[str, Literal["edge", "symmetric", "reflect", "wrap", "constant"]] = {
    "replicate": "edge",
    "reflect": "symmetric",
    "mirror": "reflect",
    "wrap": "wrap",
    "constant": "constant",
}


def slow_sums(
    plane: NDArray[np.int64], weights: NDArray[np.int64], border: str
) -> NDArray[np.int64]:
    """Return the correlation sums, integers that are added one by one."""
    rows, columns = weights.shape
    up, left = rows // 2, columns // 2
    margins = ((up, rows - 1 - up), (left, columns - 1 - left))
    padded = np.pad(plane, margins, mode=PAD[border])
    total = np.zeros(plane.shape, np.int64)
    for row, column in zip(*np.nonzero(weights), strict=True):
        window = padded[row : row + plane.shape[0], column : column + plane.shape[1]]
        total += weights[row, column] * window
    return total
