"""Encode pixels as image files; `encode_options` describes the options."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image as PillowImage

from models.codec.encoding import avif_grid
from models.codec.encoding.encode_options import PLAIN, Chroma, Encoding
from models.codec.encoding.exif import kept
from models.codec.encoding.flatten import flatten
from models.codec.formats import ImageFormat
from models.codec.metadata import copyright_exif
from models.codec.pillow import writing_at_once
from models.codec.pixels.pillow_memory import picture
from models.domain.errors import Unprocessable
from models.domain.image import Image, Jpeg, Pixels

MAX_SIDE: Mapping[ImageFormat, int] = {
    ImageFormat.JPEG: 65_500,  # libjpeg's limit; the format's is 65,535
    ImageFormat.PNG: 2**31 - 1,
    ImageFormat.WEBP: 16_383,
    ImageFormat.AVIF: 32_768,  # of libavif when it decodes; the format's is 65,536
}
"""The longest side, in pixels, that a file of the format can hold and that can be read again."""

# Chosen by tests/bench/encode.py.
_RUN_LENGTH = {"compress_level": 1, "compress_type": 3}  # zlib's Z_RLE, which has no levels
_AVIF_SPEED = 9
_WEBP_METHOD = 2
_LOSSLESS = {"lossless": True, "method": 0, "quality": 0, "exact": True}

_MOST_BYTES_A_PIXEL = 6
"""Bytes a pixel of a JPEG in full chroma, at most, as TurboJPEG's tj3JPEGBufSize counts."""


def encode(
    image: Image,
    format: ImageFormat,
    encoding: Encoding = PLAIN,
    *,
    copyright: str | None = None,
    exif: bytes | None = None,
    taken: Callable[[Pixels], None] = lambda _rows: None,
) -> bytes:
    """Return `image` as a file of `format` with the options `encoding`; sRGB, without a profile.

    By default JPEG is baseline 4:2:0, quality 90 (80 for WebP, 75 for AVIF). Grey stays grey in all
    formats but WebP; for a JPEG, alpha is flattened on white. Of metadata the `copyright` is
    written, or, with metadata="keep", what `exif.py` keeps of the source's `exif`. `taken` is
    called with pixels of a large image that the encoder has copied: the caller may give their
    memory back.

    Raises InvalidParameter for options that the format does not have, and Unprocessable for an
    image with a side too long for the format.
    """
    encoding.check(format)
    _check_sides(image, format)
    block = _metadata(image.width, image.height, encoding, copyright, exif)
    if format is ImageFormat.JPEG:
        return _with_exif(_jpeg(image, encoding, taken), block)
    if format is ImageFormat.AVIF and image.n_pixels > avif_grid.WHOLE:
        return _avif_grid(image, encoding, block)
    options = {**_options(image, format, encoding), **({"exif": block} if block else {})}
    return _by_pillow(image.pixels, format, options, taken)


def finished(
    jpeg: Jpeg,
    encoding: Encoding = PLAIN,
    *,
    copyright: str | None = None,
    exif: bytes | None = None,
) -> bytes:
    """Return the file of a JPEG that was encoded elsewhere, with the metadata that `encode` would
    write.
    """
    block = _metadata(jpeg.width, jpeg.height, encoding, copyright, exif)
    return _with_exif(jpeg.data.tobytes(), block)


def _check_sides(image: Image, format_: ImageFormat) -> None:
    if max(image.width, image.height) > MAX_SIDE[format_]:
        raise Unprocessable(
            f"the image has {image.width} × {image.height} pixels and a {format_.name} at most "
            f"{MAX_SIDE[format_]:,} on a side; ask for png, or send it smaller"
        )


def _metadata(
    width: int, height: int, encoding: Encoding, copyright_: str | None, exif: bytes | None
) -> bytes:
    """Return an EXIF block, empty if there is no metadata."""
    block = None
    if exif and encoding.metadata == "keep":
        block = kept(exif, width, height, copyright_)
    return block or (copyright_exif(copyright_) if copyright_ else b"")


def _jpeg(image: Image, encoding: Encoding, taken: Callable[[Pixels], None]) -> bytes:
    """Encode by simplejpeg, with the same bytes on every machine, unless only Pillow has the
    options.
    """
    grey = image.channels == 1
    pixels = np.ascontiguousarray(image.pixels if grey else flatten(image, taken=taken).pixels)
    quality, chroma = encoding.quality_for(ImageFormat.JPEG), encoding.subsampling
    if encoding.progressive:
        options = {
            "quality": quality,
            "progressive": True,
            **({} if grey else _subsampling(chroma)),
        }
        return _progressive(pixels, options)
    space, stored = ("GRAY", "Gray") if grey else ("RGB", chroma)
    return bytes(simplejpeg.encode_jpeg(pixels, quality, space, stored))


def _progressive(pixels: Pixels, options: Mapping[str, Any]) -> bytes:
    try:
        return _by_pillow(pixels, ImageFormat.JPEG, options)
    except OSError:
        # Pillow needs room for the whole file, and noise does not fit into what it sets aside.
        with writing_at_once(_MOST_BYTES_A_PIXEL * pixels.shape[0] * pixels.shape[1] + 2048):
            return _by_pillow(pixels, ImageFormat.JPEG, options)


def _avif_grid(image: Image, encoding: Encoding, exif: bytes) -> bytes:
    """Encode cell by cell, with the options of a whole image.

    The chroma of a grid with an odd side is not subsampled, which AVIF does not allow.
    """
    if avif_grid.needs_full_chroma(image.height, image.width):
        encoding = replace(encoding, chroma="444")

    def encode_cell(pixels: Pixels) -> bytes:
        cell = Image(pixels)
        options = _options(cell, ImageFormat.AVIF, encoding)
        return _by_pillow(cell.pixels, ImageFormat.AVIF, options)

    return avif_grid.encode_grid(image.pixels, encode_cell, exif)


def _options(image: Image, format_: ImageFormat, encoding: Encoding) -> Mapping[str, Any]:
    """Return Pillow's options for a format other than JPEG."""
    if format_ is ImageFormat.PNG:
        level = encoding.png_level
        return _RUN_LENGTH if level is None else {"compress_level": level}
    quality = encoding.quality_for(format_)
    if format_ is ImageFormat.WEBP:
        return _LOSSLESS if encoding.lossless else {"quality": quality, "method": _WEBP_METHOD}
    coloured = image.channels > 1
    return {
        **(_subsampling(encoding.subsampling) if coloured else {}),
        "quality": quality,
        "speed": _AVIF_SPEED if encoding.avif_speed is None else encoding.avif_speed,
        "max_threads": 1,  # the threads of the caller's pool share the cores already
    }


def _subsampling(chroma: Chroma) -> dict[str, str]:
    return {"subsampling": ":".join(chroma)}


def _by_pillow(
    pixels: Pixels,
    format_: ImageFormat,
    options: Mapping[str, Any],
    taken: Callable[[Pixels], None] = lambda _rows: None,
) -> bytes:
    file = BytesIO()
    if format_ is ImageFormat.AVIF:
        _Borrowed(np.ascontiguousarray(pixels)).save(file, format_.name, **options)
        return file.getvalue()
    coloured = format_ is ImageFormat.WEBP  # which has no grey
    picture(pixels, taken, coloured=coloured).save(file, format_.name, **options)
    return file.getvalue()


class _Borrowed(PillowImage.Image):
    """An image for Pillow's writer of AVIF, which asks for nothing but size, mode and bytes.

    It gives the array itself as its bytes. Pillow's own image would be one copy of the pixels and
    its bytes another, beside an encoder that needs 21 bytes for each pixel.
    """

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        height, width, channels = pixels.shape
        self._mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
        self._size = width, height
        self._pixels = pixels

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> Any:  # noqa: ARG002 (as Pillow calls)
        """Return the array."""
        return self._pixels


def _with_exif(jpeg: bytes, exif: bytes) -> bytes:
    """Return `jpeg` with an APP1 segment after its JFIF header, which has to come first."""
    if not exif:
        return jpeg
    start = 4 + int.from_bytes(jpeg[4:6], "big")
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    return jpeg[:start] + segment + jpeg[start:]
