"""Flatten images to opaque RGB."""

from collections.abc import Callable

import numpy as np
from PIL import Image as PillowImage

from models.domain.image import Image, Pixels

WHITE = (255, 255, 255)

STRIPE = 1 << 20
"""Pixels that are flattened at a time: Pillow takes 17 bytes for each of them meanwhile."""


def flatten(
    image: Image,
    background: tuple[int, int, int] = WHITE,
    taken: Callable[[Pixels], None] = lambda _pixels: None,
) -> Image:
    """Return `image` as RGB: alpha composited over `background`, grey repeated, RGB unchanged.

    Per channel (c·a + b·(255 − a)) / 255, rounded to nearest: Pillow's `alpha_composite` over an
    opaque background computes it. `taken` is called with pixels (n, 4) that are needed no more.
    """
    if image.channels == 3:
        return image
    if image.channels == 1:
        return Image(np.repeat(image.pixels, 3, axis=2))
    # Each pixel is computed by itself, so the stripes need not be whole rows.
    stored = np.ascontiguousarray(image.pixels).reshape(-1, 4)
    flat = np.empty((len(stored), 3), np.uint8)
    for start in range(0, len(stored), STRIPE):
        stripe = stored[start : start + STRIPE]
        flat[start : start + STRIPE] = _over(stripe, background)
        taken(stripe)
    return Image(flat.reshape(image.height, image.width, 3))


def _over(pixels: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Return pixels (n, 4) over a colour, as (n, 3)."""
    stored = PillowImage.fromarray(pixels[np.newaxis])
    behind = PillowImage.new("RGBA", stored.size, (*background, 255))
    flat = PillowImage.alpha_composite(behind, stored).convert("RGB")
    return np.asarray(flat, np.uint8).reshape(-1, 3)
