"""Sixty small image files of many formats, modes and sizes, always with the same bytes."""

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

SIZES = ((64, 48), (97, 61), (320, 240), (31, 200), (224, 224), (1, 1), (255, 17), (120, 160))
"""Width and height; primes, a single pixel and tall images among them."""

KINDS: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    ("JPEG", "RGB", {"quality": 90}),
    ("PNG", "RGB", {}),
    ("JPEG", "L", {"quality": 75}),
    ("PNG", "RGBA", {}),
    ("WEBP", "RGB", {"quality": 80}),
    ("JPEG", "RGB", {"quality": 85, "progressive": True}),
    ("PNG", "L", {}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("TIFF", "RGB", {}),
    ("JPEG", "CMYK", {"quality": 90}),
    ("PNG", "LA", {}),
    ("WEBP", "RGBA", {"lossless": True}),
    ("JPEG", "RGB", {"quality": 95, "subsampling": 0}),
    ("PNG", "I;16", {}),
)
"""Pillow's format, the mode and the options of each kind of file."""

ORIENTATION = 0x0112
"""The EXIF tag of the orientation."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A file and the name that its sender would give it."""

    name: str
    media_type: str
    data: bytes


def images(n: int = 60) -> list[Drawn]:
    """Draw `n` files; every seventh has an EXIF orientation."""
    return [_file(number) for number in range(n)]


def _file(number: int) -> Drawn:
    format_, mode, options = KINDS[number % len(KINDS)]
    width, height = SIZES[number * 3 % len(SIZES)]
    image = _drawing(width, height, number, mode)
    more = dict(options)
    if number % 7 == 3 and format_ in ("JPEG", "PNG", "WEBP"):
        exif = Image.Exif()
        exif[ORIENTATION] = number % 8 + 1
        more["exif"] = exif.tobytes()
    out = io.BytesIO()
    image.save(out, format_, **more)
    return Drawn(f"{number:02}.{format_.lower()}", Image.MIME[format_], out.getvalue())


def _drawing(width: int, height: int, seed: int, mode: str) -> Image.Image:
    random = np.random.default_rng([seed, width, height])
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = random.uniform(1, 6, (4, 2))
    planes = [127 + 100 * np.sin(a * x * 3 + b * y * 3 + seed) for a, b in waves]
    disc = (x - 0.4) ** 2 + (y - 0.3) ** 2 < 0.04
    pixels = np.stack(planes, -1)
    pixels[disc] = random.uniform(0, 255, 4)
    pixels += random.normal(0, 6, pixels.shape)
    drawn = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8), "RGBA")
    if mode == "I;16":
        return Image.fromarray((np.clip(planes[0], 0, 255) * 257).astype(np.uint16))
    if mode == "P":
        return drawn.convert("RGB").quantize(64)
    if mode in ("RGBA", "LA"):
        return drawn.convert(mode)
    return drawn.convert("RGB").convert(mode)
