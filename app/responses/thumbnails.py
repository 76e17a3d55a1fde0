"""Draw a small picture of the effect of each filter: a scene before and after.

The front end computes it by the filters' own CPU specifications, without a backend.
"""

import functools
import io

import numpy as np
from PIL import Image as PillowImage
from PIL import ImageDraw

from models.domain.image import Image
from workers.filters.registry import FILTERS, parse_chain

WIDTH, HEIGHT = 160, 120
GAP = 8
"""Number of pixels between both pictures."""

_FINE = 4
"""Factor by which the scene is drawn larger and then reduced, for smooth edges."""


@functools.cache
def scene() -> Image:
    """Draw a house on a hill in snow: edges, ramps, colours, grain, less than full contrast."""
    size = (WIDTH * _FINE, HEIGHT * _FINE)
    share = np.linspace(0, 1, size[1])[:, None, None]
    sky = np.array((66, 112, 178)) * (1 - share) + np.array((238, 208, 170)) * share
    drawn = PillowImage.fromarray(np.repeat(sky, size[0], 1).astype(np.uint8))
    _draw(ImageDraw.Draw(drawn))
    pixels = np.asarray(drawn.reduce(_FINE), np.int64)
    grain = np.random.default_rng(0).integers(-9, 10, (HEIGHT, WIDTH, 1))
    below = (np.arange(HEIGHT) > 88)[:, None, None]
    return Image(np.clip(pixels + grain * below, 22, 236).astype(np.uint8))


@functools.cache
def example(name: str) -> Image:
    """Return the scene after the filter, with the parameters of its example."""
    (filter_,) = parse_chain([FILTERS[name].example])
    return Image(filter_.apply(scene().pixels))


_THUMBNAILS: dict[str, bytes] = {}


def made(name: str) -> bool:
    """Return whether the thumbnail has been made already."""
    return name in _THUMBNAILS


def thumbnail(name: str) -> bytes:
    """Return a PNG of before and after side by side; the first call for a filter computes it."""
    if name not in _THUMBNAILS:
        _THUMBNAILS[name] = _drawn(name)
    return _THUMBNAILS[name]


def _drawn(name: str) -> bytes:
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


def _draw(draw: ImageDraw.ImageDraw) -> None:
    """Draw the objects of the scene; coordinates are pixels of the reduced scene."""

    def box(*corners: float) -> list[float]:
        return [_FINE * corner for corner in corners]

    draw.ellipse(box(116, 12, 142, 38), fill=(236, 220, 120))
    draw.polygon(box(0, 88, 34, 50, 58, 74, 84, 44, 126, 90), fill=(96, 104, 128))
    draw.ellipse(box(-60, 78, 130, 190), fill=(70, 118, 58))
    draw.ellipse(box(70, 84, 250, 200), fill=(96, 140, 66))
    draw.rectangle(box(44, 64, 92, 98), fill=(186, 58, 48))
    draw.rectangle(box(80, 64, 92, 98), fill=(128, 38, 36))
    draw.polygon(box(38, 66, 68, 40, 98, 66), fill=(58, 46, 50))
    draw.rectangle(box(80, 40, 87, 56), fill=(90, 70, 66))
    for x in (50, 64):
        draw.rectangle(box(x, 72, x + 9, 81), fill=(232, 226, 196))
        draw.line(box(x + 4.5, 72, x + 4.5, 81), fill=(40, 36, 40), width=_FINE)
    draw.rectangle(box(70, 84, 78, 98), fill=(36, 30, 34))
    for x in range(100, 150, 6):
        draw.rectangle(box(x, 92, x + 2.5, 108), fill=(222, 210, 190))
    draw.rectangle(box(98, 96, 152, 98.5), fill=(222, 210, 190))
    draw.rectangle(box(128, 66, 132, 90), fill=(74, 52, 38))
    draw.ellipse(box(116, 42, 146, 76), fill=(42, 88, 50))
    draw.ellipse(box(122, 44, 142, 62), fill=(66, 116, 62))
    random = np.random.default_rng(1)
    for x, y in zip(random.uniform(2, 158, 70), random.uniform(2, 118, 70), strict=True):
        draw.ellipse(box(x - 0.7, y - 0.7, x + 0.7, y + 0.7), fill=(236, 236, 236))
