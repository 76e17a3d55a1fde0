"""From an image file to upright sRGB pixels. Knows nothing of where the bytes came from.

JPEGs go through simplejpeg (libjpeg-turbo, the same pixels as Pillow in two thirds of the time);
what it refuses, and every other format, is left to Pillow, which alone decides what is decodable.
"""

from dataclasses import dataclass, replace

import numpy as np
import simplejpeg
from PIL import Image as PillowImage

from models.codec.channels import is_grey, scale_transparency, simplified
from models.codec.colour import is_srgb, to_srgb
from models.codec.formats import ImageFormat
from models.codec.jpeg import inspect
from models.codec.metadata import Metadata, read_metadata
from models.codec.pillow import reading
from models.codec.probe import Header, ImageInfo, read_header
from models.errors import Undecodable
from models.image import Image, Pixels, Source

MAX_JPEG_SCANS = 100
"""A scan of a few bytes may cost a pass over all pixels; encoders write 1 to 15 of them."""

_BYTES_PER_SCAN = 1 << 14
"""One more scan is allowed per so many bytes: what looks like one comes by chance every 64 KiB in
the video some phones append."""

_SECONDS_PER_PIXEL = {
    ImageFormat.JPEG: 15e-9,
    ImageFormat.PNG: 20e-9,
    ImageFormat.WEBP: 25e-9,
    ImageFormat.GIF: 20e-9,
    ImageFormat.BMP: 10e-9,
    ImageFormat.TIFF: 20e-9,
    ImageFormat.AVIF: 50e-9,
}

_PNG_DEPTH = 24
"""Where a PNG says how many bits a sample has: IHDR is its first chunk."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The first frame of a file; `info` is what the file really held, size and orientation too.

    `image` is an Image, or a Jpeg where the caller asked for one; `exif` is as in the file.
    """

    image: Source
    info: ImageInfo
    copyright: str | None
    exif: bytes | None = None


class Opened:
    """An image file whose header has been read, once; its pixels can be decoded, once."""

    def __init__(self, data: bytes, header: Header) -> None:
        self._data = data
        self._header = header

    @property
    def info(self) -> ImageInfo:
        """What the header says; a PNG may carry its EXIF behind the pixels."""
        return self._header.info

    @property
    def cost(self) -> float:
        """CPU seconds that decoding is estimated to take."""
        info = self._header.info
        return info.n_pixels * _SECONDS_PER_PIXEL[info.format]

    def decode(self) -> Decoded:
        """The pixels; raises Undecodable where they are corrupt or truncated."""
        header = self._header
        if header.info.fast_jpeg:
            with reading(ImageFormat.JPEG):
                pixels = _by_simplejpeg(self._data, header)
            if pixels is not None:
                return Decoded(Image(pixels), header.info, header.copyright, header.exif)
        return _by_pillow(self._data, header)


def open_file(data: bytes, *, max_pixels: int) -> Opened:
    """An image file, its cost within bounds; raises what `probe` raises."""
    header = read_header(data, max_pixels)
    if header.info.format is ImageFormat.JPEG and inspect(data) is None:
        _check_scans(data)
    return Opened(data, header)


def open_plain(data: bytes, *, max_pixels: int) -> Opened | None:
    """A baseline JPEG without any doubt, which costs what its pixels cost; None for all else."""
    if inspect(data) is None:
        return None
    header = read_header(data, max_pixels)
    return Opened(data, header) if header.info.fast_jpeg else None


def decode(data: bytes, *, max_pixels: int) -> Decoded:
    """The pixels of an image file: upright, sRGB, 8 bits; 1, 3 or 4 channels; C-contiguous.

    The GIL is released while decoding. Raises what `probe` raises, and Undecodable for a file
    whose pixels are corrupt or truncated.
    """
    return open_file(data, max_pixels=max_pixels).decode()


def pixels_of(source: Source) -> Image:
    """An image as it is, a JPEG decoded; raises Undecodable for one that is corrupt inside."""
    if isinstance(source, Image):
        return source
    decoded = decode(source.data.tobytes(), max_pixels=source.n_pixels).image
    assert isinstance(decoded, Image)
    return decoded


def _check_scans(data: bytes) -> None:
    """A JPEG whose scans would cost more than an encoder's ever do is refused."""
    scans = data.count(b"\xff\xda")
    if scans > MAX_JPEG_SCANS + len(data) // _BYTES_PER_SCAN:
        raise Undecodable(f"the JPEG has {scans} scans; save it anew, as baseline or progressive")


def _by_simplejpeg(data: bytes, header: Header) -> Pixels | None:
    """Upright pixels; None where simplejpeg has the least doubt, warnings included."""
    info = header.info
    grey = info.mode == "L"
    swapped = info.orientation >= 5
    size = (info.width, info.height) if swapped else (info.height, info.width)
    # A buffer of the size that was checked: the decoder can never allocate by another header.
    pixels = np.empty((*size, 1 if grey else 3), np.uint8)
    try:
        decoded = simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB", buffer=pixels)
    except ValueError:
        return None
    if decoded.shape != pixels.shape:
        return None
    if not is_srgb(header.icc_profile, grey=grey):
        stored = PillowImage.fromarray(pixels[..., 0] if grey else pixels)
        pixels = _pixels(to_srgb(stored, header.icc_profile, grey=grey))
    return upright(pixels, info.orientation)


def _by_pillow(data: bytes, header: Header) -> Decoded:
    format_ = header.info.format
    metadata = Metadata(header.info.orientation, header.copyright, header.exif)
    image = header.image
    assert image is not None
    with reading(format_):
        image.load()
        if format_ is ImageFormat.PNG:
            image._exif = None  # of before the pixels; it may stand behind them
            metadata = read_metadata(image)
            scale_transparency(image, depth=data[_PNG_DEPTH])
        grey = is_grey(image.mode)
        pixels = _pixels(to_srgb(simplified(image), header.icc_profile, grey=grey))
    if format_ is not ImageFormat.TIFF:  # Pillow turns those while loading
        pixels = upright(pixels, metadata.orientation)
    height, width = pixels.shape[:2]
    info = replace(header.info, width=width, height=height, orientation=metadata.orientation)
    return Decoded(Image(pixels), info, metadata.copyright, metadata.exif)


def _pixels(image: PillowImage.Image) -> Pixels:
    pixels = np.array(image)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels as stored, turned as EXIF `orientation` (1..8) asks."""
    if orientation == 1:
        return pixels
    channels = pixels.shape[2]
    # One item per pixel: twice as fast to move as three bytes on an axis of their own.
    turned = pixels.view(f"V{channels}")[..., 0]
    if orientation >= 5:
        turned = turned.T
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    moved = np.ascontiguousarray(turned)[..., np.newaxis]
    return moved.view(np.uint8).reshape(*turned.shape, channels)
