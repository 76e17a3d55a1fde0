"""Flatten images to opaque RGB."""

import numpy as np
from PIL import Image as PillowImage

from models.domain.image import Image

WHITE = (255, 255, 255)


def flatten(image: Image, background: tuple[int, int, int] = WHITE) -> Image:
    """Return `image` as RGB: alpha composited over `background`, grey repeated, RGB unchanged.

    Per channel (c·a + b·(255 − a)) / 255, rounded to nearest: Pillow's `alpha_composite` over an
    opaque background computes it.
    """
    if image.channels == 3:
        return image
    if image.channels == 1:
        return Image(np.repeat(image.pixels, 3, axis=2))
    stored = PillowImage.fromarray(image.pixels)
    behind = PillowImage.new("RGBA", stored.size, (*background, 255))
    behind.alpha_composite(stored)
    return Image(np.array(behind.convert("RGB")))
