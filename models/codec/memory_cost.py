"""Estimate the memory that decoding and encoding take, before they begin.

The figures are bytes per pixel, measured by `python -m tests.bench.decoder_memory` and rounded up:
the codec's own buffers, Pillow's image of 4 bytes per pixel, the pixels that come out of it, and
the file that an encoder makes. They hold for images that are large; the tables of a codec come to
a few MB more for every image.
"""

from models.codec.encode_options import Encoding
from models.codec.formats import ImageFormat
from models.codec.probe import ImageInfo

_PLAIN_MODES = frozenset(("1", "L", "RGB", "I;16", "I;16B", "I;16L"))

_DECODED = {
    ImageFormat.JPEG: (8, 16),
    ImageFormat.PNG: (11, 18),
    ImageFormat.WEBP: (19, 19),
    ImageFormat.GIF: (14, 14),
    ImageFormat.BMP: (13, 18),
    ImageFormat.TIFF: (13, 25),
    ImageFormat.AVIF: (14, 14),
}
"""For grey and RGB, and for every other mode: palettes, alpha, CMYK and floats."""


def decode_memory(info: ImageInfo, size: int) -> int:
    """Estimate the bytes that decoding a file of `size` bytes takes at most."""
    plain, other = _DECODED[info.format]
    return size + info.n_pixels * (plain if info.mode in _PLAIN_MODES else other)


def encode_memory(pixels: int, channels: int, format: ImageFormat, encoding: Encoding) -> int:
    """Estimate the bytes that encoding takes at most, with a copy of the pixels themselves."""
    match format:
        case ImageFormat.AVIF:
            beside = 28 if encoding.subsampling == "420" else 40
        case ImageFormat.WEBP:
            beside = 20 if encoding.lossless else 10 if channels < 4 else 25  # alpha is lossless
        case ImageFormat.PNG:
            beside = 5
        case _:
            beside = 8 if encoding.progressive else 2
    return pixels * (channels + beside)
