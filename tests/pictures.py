"""Small images for tests, drawn with NumPy: no files to store or to license."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from models.domain import image as domain

HEIF = Path(__file__).parent / "heif"
"""The folder of small HEIF files; its README.md names them."""


def drawing(width: int = 320, height: int = 240, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Draw smooth colour, a disc and some grain: it compresses like a photo, and each seed
    differs.
    """
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = random.uniform(1, 6, (3, 2))
    colour = [127 + 100 * np.sin(a * x * 3 + b * y * 3 + seed) for a, b in waves]
    pixels = np.stack(colour, -1)
    centre_x, centre_y, radius = random.uniform(0.2, 0.6, 3)
    pixels[(x - centre_x) ** 2 + (y - centre_y) ** 2 < (radius / 2) ** 2] = random.uniform(
        0, 255, 3
    )
    pixels += random.normal(0, 6, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, format: str = "JPEG", **options: object) -> bytes:
    """Return the image as a file."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def exif(**entries: object) -> Image.Exif:
    """Return EXIF with these entries: `exif(x274=6)` has the value 6 under the tag 274."""
    block = Image.Exif()
    for tag, value in entries.items():
        block[int(tag[1:])] = value
    return block


def jpeg(seed: int = 0, width: int = 320, height: int = 240) -> bytes:
    """Return a JPEG of a drawing."""
    return encoded(drawing(width, height, seed), quality=90)


def damaged_jpeg() -> bytes:
    """Return a JPEG whose data hold codes that no table has, which only decoding shows."""
    data = jpeg()
    start = data.index(b"\xff\xda") + 20
    return data[:start] + b"\xff\0" * 20 + data[start + 40 :]


def png(seed: int = 0, width: int = 64, height: int = 48, mode: str = "RGB") -> bytes:
    """Return a PNG of a drawing."""
    return encoded(drawing(width, height, seed, mode), "PNG")


def as_image(source: domain.Source) -> domain.Image:
    """Return a source that must be decoded pixels; a JPEG fails the test."""
    assert isinstance(source, domain.Image)
    return source
