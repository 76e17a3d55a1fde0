"""Estimate the cost of encoding before it begins: CPU seconds by pixels, format and options.

Measured per megapixel on one core of 2.x GHz, photos (noise takes two to three times as long): AVIF
43 s at speed 0, 4 s at 4, 0.55 s at 6, 0.06 s from 9; PNG 1.2 s at level 9, 0.25 s at 6; WebP 0.05
s; progressive JPEG 0.02 s; baseline JPEG 0.003 s.
"""

from models.codec.encoding.encode_options import Encoding
from models.codec.formats import ImageFormat
from models.domain.errors import Unprocessable

_AVIF = (43e-6, 17e-6, 14e-6, 7.5e-6, 4e-6, 1.5e-6, 0.6e-6, 0.2e-6, 0.1e-6, 0.07e-6, 0.07e-6)
_PNG = (0.02e-6, 0.07e-6, 0.08e-6, 0.1e-6, 0.12e-6, 0.18e-6, 0.25e-6, 0.35e-6, 0.8e-6, 1.2e-6)
_WEBP, _PROGRESSIVE, _BASELINE = 0.05e-6, 0.02e-6, 0.003e-6
_USUAL_SPEED, _USUAL_LEVEL = 9, 1


def encode_cost(pixels: int, format: ImageFormat, encoding: Encoding) -> float:
    """Estimate the CPU seconds that encoding an image of this number of pixels takes."""
    if format is ImageFormat.AVIF:
        speed = encoding.avif_speed
        return pixels * _AVIF[_USUAL_SPEED if speed is None else speed]
    if format is ImageFormat.PNG:
        level = encoding.png_level
        return pixels * _PNG[_USUAL_LEVEL if level is None else level]
    if format is ImageFormat.WEBP:
        return pixels * _WEBP
    return pixels * (_PROGRESSIVE if encoding.progressive else _BASELINE)


def check_encode_cost(pixels: int, format: ImageFormat, encoding: Encoding, most: float) -> float:
    """Return the estimate in CPU seconds; raise Unprocessable if it is over `most` seconds."""
    cost = encode_cost(pixels, format, encoding)
    if cost > most:
        faster = {
            ImageFormat.AVIF: "a higher avif_speed",
            ImageFormat.PNG: "a lower png_level",
        }.get(format, "another format")
        raise Unprocessable(
            f"encoding {pixels:,} pixels as asked takes about {cost:,.0f} s of CPU time, more than "
            f"the {most:g} allowed; ask for {faster} or a smaller image"
        )
    return cost
