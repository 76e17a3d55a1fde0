"""Estimate the memory that encoding takes, before it begins.

The figures are bytes per pixel, measured by `python -m tests.bench.decoder_memory` and rounded up:
the pixels, Pillow's picture of 4 bytes per pixel, the codec's own buffers, and the file. Files are
counted as large as those of noise, of which anybody can make a photo by a filter.
"""

from collections.abc import Mapping
from typing import TypeVar

from models.codec.encoding import avif_grid
from models.codec.encoding.encode_options import PLAIN, Encoding
from models.codec.encoding.encoder import MAX_SIDE
from models.codec.formats import ENCODABLE, ImageFormat
from models.domain.errors import Unprocessable

T = TypeVar("T")

Shape = tuple[int, int, int]
"""Height, width and channels of an image."""

_PICTURE = 4
"""Bytes per pixel of the picture in colour that Pillow encodes; the pixels are freed meanwhile."""

_FILES_OF_JPEG = {
    90: {"420": 1.15, "422": 1.5, "444": 2.3},
    95: {"420": 1.45, "422": 1.9, "444": 2.9},
    100: {"420": 2.35, "422": 3.1, "444": 4.72},
}
"""Bytes per pixel of a JPEG of noise, by the highest quality and the chroma."""

_COEFFICIENTS = {"420": 3, "422": 4, "444": 6}
"""Bytes per pixel of the coefficients of a progressive JPEG, which are kept until its last scan."""

_ROWS_OF_PNG = 6
"""Rows of a PNG in the memory of its encoder: one before it, and one for each way to filter it."""

_WEBP = 10
"""Bytes per pixel of an opaque WebP beside its file: Pillow's picture, and libwebp's planes and
tokens."""

_FILES_OF_WEBP = {90: 1.0, 98: 1.22, 100: 3.2}
"""Bytes per pixel of a WebP of noise, by the highest quality."""

_LOSSLESS_WEBP, _WEBP_WITH_ALPHA = 29, 41.5
"""Bytes per pixel of the WebPs that libwebp takes more for; it compresses alpha without loss."""

_CELL_OF_AVIF = 43
"""Bytes per pixel of the cell of an AVIF grid that is encoded: what 4:4:4 takes, and its pixels
twice. Beside it stand the pixels of the image, and the file."""

_COLOURS_OF_AVIF = {75: {"420": 0.95, "444": 1.6}, 100: {"420": 2.1, "444": 4.4}}
"""Bytes per pixel of the colours of an AVIF of noise, by the highest quality and the chroma."""

_PLANES_OF_AVIF = {75: 0.6, 100: 1.5}
"""Bytes per pixel of alpha, or of grey, in such a file."""


def encode_memory(shape: Shape, format: ImageFormat, encoding: Encoding) -> int:
    """Estimate the bytes that encoding takes at most, with the pixels and the file."""
    height, width, channels = shape
    pixels = height * width
    match format:
        case ImageFormat.AVIF if pixels > avif_grid.WHOLE:
            return int(pixels * _of_grid(shape, encoding)) + avif_grid.CELL * _CELL_OF_AVIF
        case ImageFormat.AVIF:
            beside = (22 if encoding.subsampling == "420" else 34) + (2 if channels == 4 else 0)
            return pixels * (channels + beside)
        case ImageFormat.WEBP:
            return int(pixels * _of_webp(channels, encoding))
        case ImageFormat.PNG:
            picture = 1 if channels == 1 else _PICTURE
            return pixels * (picture + channels + 1) + _ROWS_OF_PNG * width * channels
        case _:
            return int(pixels * _of_jpeg(channels, encoding))


def _of_grid(shape: Shape, encoding: Encoding) -> float:
    """Return the bytes per pixel of encoding an AVIF grid, beside its cell.

    The file counts twice: the allocator keeps the memory of the cells that were copied into it.
    """
    height, width, channels = shape
    quality = encoding.quality_for(ImageFormat.AVIF)
    halved = encoding.subsampling == "420" and not avif_grid.needs_full_chroma(height, width)
    colours = _up_to(quality, _COLOURS_OF_AVIF)["420" if halved else "444"]
    plane = _up_to(quality, _PLANES_OF_AVIF)
    file = {1: plane, 3: colours, 4: colours + plane}[channels]
    return channels + 2 * file


def _of_webp(channels: int, encoding: Encoding) -> float:
    """Return the bytes per pixel of encoding a WebP."""
    if encoding.lossless:
        return _LOSSLESS_WEBP
    if channels == 4:
        return _WEBP_WITH_ALPHA
    # The file is copied once, when it is complete.
    return _WEBP + 2 * _up_to(encoding.quality_for(ImageFormat.WEBP), _FILES_OF_WEBP)


def _of_jpeg(channels: int, encoding: Encoding) -> float:
    """Return the bytes per pixel of encoding a JPEG, which has no alpha."""
    files = _up_to(encoding.quality_for(ImageFormat.JPEG), _FILES_OF_JPEG)
    chroma, grey = encoding.subsampling, channels == 1
    file = files["420"] if grey else files[chroma]
    stored = 1 if grey else 3
    if not encoding.progressive:
        return stored + 2 * file + (1 if channels == 4 else 0)
    picture, coefficients = (1, 2) if grey else (_PICTURE, _COEFFICIENTS[chroma])
    return stored + picture + coefficients + 2 * file


def _up_to(quality: int, by_quality: Mapping[int, T]) -> T:
    """Return the value of the lowest quality that is not below this one."""
    return next(value for most, value in by_quality.items() if quality <= most)


def check_encode_memory(
    shape: Shape, format: ImageFormat, encoding: Encoding, most: int, *, beside: int = 0
) -> None:
    """Raise Unprocessable for an encoding that needs more than `most` bytes by estimate.

    `beside`: bytes of pixels that stay in memory meanwhile, because other answers need them.
    """
    needed = encode_memory(shape, format, encoding) + beside
    if needed > most:
        kept = f", {beside >> 20:,} of them for other answers to this image" if beside else ""
        raise Unprocessable(
            f"encoding {shape[1]} × {shape[0]} pixels as {_name(shape, format, encoding)} takes "
            f"about {needed >> 20:,} MiB of memory{kept}, more than the {most >> 20:,} allowed; "
            f"{_instead(shape, most - beside)}"
        )


def _name(shape: Shape, format: ImageFormat, encoding: Encoding) -> str:
    """Return the name of a format with what makes it take more memory."""
    kind = "lossless " if encoding.lossless else "progressive " if encoding.progressive else ""
    return f"{kind}{format.name}{' with alpha' if shape[2] == 4 else ''}"


def _instead(shape: Shape, most: int) -> str:
    """Return what to ask for: the formats that are allowed for these pixels, or fewer pixels."""
    fitting = [
        each
        for each in ENCODABLE
        if max(shape[:2]) <= MAX_SIDE[each] and encode_memory(shape, each, PLAIN) <= most
    ]
    others = f"{' or '.join(fitting)} without further options, or for " if fitting else ""
    return f"ask for {others}fewer pixels"
