"""Luma, the one formula of Darkroom: Pillow's `convert("L")`, in integers."""

import numpy as np
from numpy.typing import NDArray

from models.image import Pixels


def luma(pixels: Pixels) -> Pixels:
    """(19595 R + 38470 G + 7471 B + 32768) >> 16: uint8 (H, W, C) to uint8 (H, W)."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    red, green, blue = (pixels[:, :, n].astype(np.uint32) for n in range(3))
    total: NDArray[np.uint32] = red * 19595 + green * 38470 + blue * 7471 + 32768
    return (total >> 16).astype(np.uint8)
