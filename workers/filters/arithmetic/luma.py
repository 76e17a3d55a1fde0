"""Luma by the one formula of Darkroom: (19595 R + 38470 G + 7471 B + 32768) >> 16, in integers.

These are the weights of ITU-R BT.601 in 16 bits, as in Pillow's libImaging/Convert.c (`L24`).
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import mixed
from workers.filters.arithmetic.tiling import pieces

BITS = 16
MATRIX = np.array([[19595, 38470, 7471, 0]] * 3)
"""The matrix, int64 (3, 4), that puts the luma into every channel; the last column is added."""


_CONVERTED = 1 << 22
"""Samples that are converted at a time."""


def luma(pixels: Pixels) -> NDArray[np.uint8]:
    """Return the luma of uint8 (H, W, C) as uint8 (H, W); alpha is ignored.

    Pillow's `convert("L")` computes it.
    """
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    # Pillow copies what it converts, in 4 bytes per pixel.
    lumas = [np.asarray(Image.fromarray(each).convert("L")) for each in pieces(pixels, _CONVERTED)]
    plane = lumas[0] if len(lumas) == 1 else np.concatenate(lumas, 1)
    return plane.reshape(pixels.shape[:2])


def lumas(colour: Pixels) -> Pixels:
    """Return the luma of colours (H, W, 3) in every channel, uint8; a grey image is returned as it
    is.

    One matrix product is faster than a conversion and three copies.
    """
    return colour if colour.shape[2] == 1 else mixed(colour, MATRIX, BITS)
