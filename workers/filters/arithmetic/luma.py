"""Luma, the one formula of Darkroom: (19595 R + 38470 G + 7471 B + 32768) >> 16, in integers."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import mixed

BITS = 16
MATRIX = np.array([[19595, 38470, 7471, 0]] * 3)
"""Luma in every channel."""


def luma(pixels: Pixels) -> NDArray[np.uint8]:
    """Uint8 (H, W, C) to uint8 (H, W), whatever alpha is; Pillow's `convert("L")` computes it."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    return np.asarray(Image.fromarray(pixels).convert("L"))


def lumas(colour: Pixels) -> Pixels:
    """Luma in every channel of colours (H, W, 3), faster than repeated; a grey image as it is."""
    return colour if colour.shape[2] == 1 else mixed(colour, MATRIX, BITS)
