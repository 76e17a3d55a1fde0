"""Draw a small picture of the effect of each filter: a scene before and after.

The front end computes it by the filters' own CPU specifications, without a backend.
"""

import functools
import io
from pathlib import Path

import numpy as np
from PIL import Image as PillowImage

from models.domain.image import Image
from workers.filters.registry import FILTERS, parse_chain

SCENE = Path(__file__).with_name("scene.png")
"""A house on a hill in snow: edges, ramps, colours, grain, less than full contrast."""

WIDTH, HEIGHT = 160, 120
"""Pixels of the scene."""

GAP = 8
"""Number of pixels between both pictures."""


@functools.cache
def scene() -> Image:
    """Return the picture that all filters are applied to."""
    with PillowImage.open(SCENE) as file:
        return Image(np.asarray(file.convert("RGB")))


@functools.cache
def example(name: str) -> Image:
    """Return the scene after the filter, with the parameters of its example."""
    (filter_,) = parse_chain([FILTERS[name].example])
    return Image(filter_.apply(scene().pixels))


@functools.cache
def thumbnail(name: str) -> bytes:
    """Return a PNG of before and after side by side; the first call for a filter computes it."""
    before, after = as_pillow(scene()), as_pillow(example(name))
    size = (before.width + GAP + after.width, max(before.height, after.height))
    both = PillowImage.new("RGBA", size)
    both.paste(before, (0, 0))
    both.paste(after, (before.width + GAP, 0))
    file = io.BytesIO()
    both.save(file, "PNG")
    return file.getvalue()


def as_pillow(image: Image) -> PillowImage.Image:
    """Return an image reduced to at most twice the scene, because some filters enlarge."""
    pixels = image.pixels[..., 0] if image.channels == 1 else image.pixels
    shown = PillowImage.fromarray(pixels)
    shown.thumbnail((2 * WIDTH, 2 * HEIGHT))
    return shown
