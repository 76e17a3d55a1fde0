"""Estimate the memory that decoding takes, before it begins.

The figures are bytes per pixel, measured by `python -m tests.bench.decoder_memory` and rounded up:
the codec's own buffers, Pillow's image of 4 bytes per pixel, and the pixels that come out of it.
They hold for images that are large; the tables of a codec and the stripe that is converted come to
10 to 20 MB more for every image. `encoding/encode_memory.py` does the same for encoding.
"""

from models.codec.formats import ImageFormat, identify
from models.codec.probe import ImageInfo
from models.codec.size_hint import claimed_pixels
from models.domain.errors import TooManyPixels

_PLAIN_MODES = frozenset(("1", "L", "RGB", "I;16", "I;16B", "I;16L"))

_DECODED = {
    ImageFormat.JPEG: (6.2, 9.0),
    ImageFormat.PNG: (7.5, 9.0),
    ImageFormat.WEBP: (12.1, 12.1),
    ImageFormat.GIF: (6.0, 6.0),
    ImageFormat.BMP: (7.5, 9.0),
    ImageFormat.TIFF: (7.5, 9.0),
    ImageFormat.AVIF: (9.5, 9.5),
}
"""For grey and RGB, and for every other mode: palettes, alpha, CMYK and floats."""

_LOADED = 4
"""Bytes per pixel of Pillow's picture, beside which the rows of a PNG and the strips or tiles of a
TIFF are unpacked. A TIFF with an orientation is turned into a second one before they are freed."""

_ROW = 8
"""Bytes of a row of Pillow's picture beside its pixels, which are the place of the row."""

_NARROW = 16
"""Pixels of a row that make up for that: the figures hold for rows of as many. One column took 15
bytes per pixel."""

_LOADED_AVIF = 2
"""Bytes per sample that Pillow takes for an AVIF beside its planes: it has the pixels twice."""

_DECODER_OF_AVIF = 1
"""Bytes per pixel of the tables of dav1d, which knows all blocks of a frame; 0.5 to 0.7 were
measured."""

_PLAIN_JPEG = 3
"""Bytes per pixel of a certain baseline JPEG, which is decoded into the pixels at once; one with an
orientation is decoded into another array, and turned into the pixels."""

_PIXELS_OF_JPEG = 3.4
"""Bytes per pixel of the pixels of a JPEG of several scans, beside its coefficients."""

_CANVASES = 9
"""Bytes per pixel of the two pictures in RGBA that libwebp allocates when it opens a file."""


def open_memory(data: bytes) -> int:
    """Return the bytes that opening a file allocates for its pixels, before any is decoded."""
    return _CANVASES * (claimed_pixels(data) or 0) if identify(data) is ImageFormat.WEBP else 0


def decode_memory(
    info: ImageInfo,
    size: int,
    *,
    plain_jpeg: bool = False,
    coefficients: float = 0.0,
    buffers: int = 0,
) -> int:
    """Estimate the bytes that decoding a file of `size` bytes takes at most, its pixels included.

    `plain_jpeg`: the file is one that `open_plain` opens. `coefficients`: the bytes per pixel that
    a JPEG of several scans keeps until its last scan, 3 in 4:2:0 and 6 in 4:4:4. `buffers`: the
    bytes of the rows of a PNG, of the strip or tile of a TIFF, or of the planes of an AVIF, which
    are unpacked at a time.
    """
    if plain_jpeg:
        return size + info.n_pixels * _PLAIN_JPEG * (1 if info.orientation == 1 else 2)
    plain, other = _DECODED[info.format]
    per_pixel = plain if info.mode in _PLAIN_MODES and not info.transparent else other
    if coefficients:
        per_pixel = max(per_pixel, coefficients + _PIXELS_OF_JPEG)
    files = 2 if info.format is ImageFormat.WEBP else 1  # libwebp's decoder copies the file
    needed = max(int(info.n_pixels * per_pixel), info.n_pixels * _loaded(info) + buffers)
    return files * size + needed + _ROW * max(0, _rows(info) - info.n_pixels // _NARROW)


def _rows(info: ImageInfo) -> int:
    """Return the rows of the pictures that Pillow has at a time; a TIFF is turned into a second."""
    if info.format is ImageFormat.TIFF and info.orientation != 1:
        return info.height + info.width
    return info.height if info.orientation < 5 else info.width


def _loaded(info: ImageInfo) -> int:
    """Return the bytes per pixel that stand beside the buffers of a decoder."""
    if info.format is ImageFormat.AVIF:
        return _LOADED_AVIF * info.most_channels + _DECODER_OF_AVIF
    turned = info.format is ImageFormat.TIFF and info.orientation != 1
    return 2 * _LOADED if turned else _LOADED


def check_decode_memory(info: ImageInfo, needed: int, most: int) -> None:
    """Raise TooManyPixels for an image whose decoding needs more than `most` bytes by estimate."""
    if needed > most:
        raise TooManyPixels(
            f"decoding this {info.format.name} of {info.width} × {info.height} pixels takes about "
            f"{needed >> 20:,} MiB of memory, more than the {most >> 20:,} allowed; "
            "send it smaller, or as a baseline JPEG"
        )
