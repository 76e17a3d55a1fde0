"""Decode image files to upright sRGB pixels.

JPEGs go through simplejpeg (libjpeg-turbo, the same pixels as Pillow in two thirds of the time).
Files that it refuses, and all further formats, go to Pillow, which alone decides whether a file can
be decoded. A file is whole if its pixels are: decoders fill up missing pixels, and say so in a
warning at most.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import simplejpeg

from models.codec.animation import Animation, read_frames
from models.codec.appearance import with_appearance
from models.codec.colour import is_matrix_profile, is_srgb, profile_cost, scale_transparency
from models.codec.costs import decode_memory
from models.codec.description import Description, describe
from models.codec.formats import ImageFormat
from models.codec.jpeg import BaselineJpeg, check_jpeg, check_warning, closed, inspect, whole
from models.codec.matrix_shaper import matrix_shaper
from models.codec.metadata import Metadata, of_segments, read_metadata
from models.codec.pillow import open_image, reading
from models.codec.png import check_rows
from models.codec.probe import SWAPPED, Header, ImageInfo, opened_header, read_header
from models.codec.stripes import (
    NewPixels,
    convert_in_place,
    converted,
    loaded,
    new_pixels,
    upright,
)
from models.codec.tiff import check_jpegs
from models.domain.image import Image, Jpeg, NetworkInput, Pixels, Source, Subsampling

_PNG_DEPTH = 24
"""Offset of the bits of a sample in a PNG: IHDR is its first chunk."""


@dataclass(slots=True)
class Decoded:
    """The first frame of a file, or all frames one below the other with their times; `info`
    describes the real content of the file, size and orientation too.

    `image` is an Image, or a Jpeg if the caller asked for a file; `exif` is as in the file.
    """

    image: Source
    info: ImageInfo
    copyright: str | None
    exif: bytes | None = None
    animation: Animation | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return height, width and channels of the image, or of a frame."""
        return self.image.height // self.info.stack, self.image.width, self.image.channels

    def take(self) -> Source:
        """Return the image, which is lost here, so that its last user alone keeps the pixels."""
        image = self.image
        del self.image
        return image


class Opened:
    """An image file whose header has been read, once; its pixels can be decoded, once."""

    def __init__(self, data: bytes, header: Header) -> None:
        self._data = data
        self._header = header

    @property
    def info(self) -> ImageInfo:
        """Return the content of the header; a PNG may have its EXIF after the pixels."""
        return self._header.info

    @property
    def cost(self) -> float:
        """Return the estimated CPU seconds of decoding."""
        header = self._header
        return header.info.n_pixels * header.seconds_per_pixel + profile_cost(header.icc_profile)

    @property
    def memory(self) -> int:
        """Return the estimated bytes that decoding takes at most, with the file and the pixels."""
        header = self._header
        return decode_memory(
            header.info,
            len(self._data),
            coefficients=header.coefficients,
            buffers=header.buffers,
        )

    def describe(self, *, colour: bool = False, appearance: bool = False) -> Description:
        """Return a description of the content with its `colour` or, decoded whole, `appearance`.

        Both raise Undecodable as `decode` does.
        """
        found = describe(self._data, self._header, colour=colour)
        if not appearance:
            return found
        image = self.decode(writable=False).image
        assert isinstance(image, Image)
        self._header = self._header._replace(image=None)  # frees Pillow's copy of the pixels
        return with_appearance(found, image.pixels)

    def decode(self, *, writable: bool = True, new_pixels: NewPixels = new_pixels) -> Decoded:
        """Return the pixels; raises Undecodable where they are corrupt or truncated.

        `writable=False` saves a copy of most images where the caller only reads the pixels. Large
        images are decoded into the array that `new_pixels` returned last.
        """
        decoded = self._decoded(new_pixels)
        image = decoded.image
        if not writable or not isinstance(image, Image) or image.pixels.flags.writeable:
            return decoded
        return replace(decoded, image=Image(image.pixels.copy()))

    def decode_plain(self, new_pixels: NewPixels = new_pixels) -> Decoded | None:
        """Return the pixels of a fast JPEG, or None for a damaged JPEG, which takes more memory."""
        header = self._header
        with reading(ImageFormat.JPEG):
            pixels = _by_simplejpeg(self._data, header, new_pixels)
        if pixels is None:
            return None
        return Decoded(Image(pixels), header.info, header.copyright, header.exif)

    def _decoded(self, new_pixels: NewPixels) -> Decoded:
        if self._header.info.fast_jpeg:
            if decoded := self.decode_plain(new_pixels):
                return decoded
            new_pixels((1, 1, 1))  # replaces the array of the failed attempt, which is freed
        if self._header.info.stack > 1:
            return _all_frames(self._data, self._header, new_pixels)
        return _by_pillow(self._data, self._header, new_pixels)


def open_file(data: bytes, *, max_pixels: int, all_frames: bool = False) -> Opened:
    """Open an image file whose cost is within bounds; raise the errors of `read_header`.

    `all_frames`: all frames of an animation will be decoded, and not the first alone.
    """
    return Opened(data, read_header(data, max_pixels, all_frames=all_frames))


def open_plain(data: bytes, *, max_pixels: int) -> Opened | None:
    """Open a baseline JPEG whose cost depends on its pixels alone, else return None."""
    found = inspect(data)
    header = None if found is None else plain_header(data, found, max_pixels)
    if header is None or not header.info.fast_jpeg:
        return None
    profile = header.icc_profile
    return None if profile and not is_matrix_profile(profile) else Opened(data, header)


def decode(data: bytes, *, max_pixels: int) -> Decoded:
    """Return the pixels of an image file: upright, sRGB, 8 bits; 1, 3 or 4 channels; C-contiguous.

    The GIL is released while decoding. Raises the errors of `read_header`, and Undecodable for a
    file whose pixels are corrupt or truncated.
    """
    return open_file(data, max_pixels=max_pixels).decode()


def pixels_of(source: Source) -> Image:
    """Return an image as it is, or a JPEG decoded; raise Undecodable if its data are corrupt.

    A NetworkInput has no pixels any more: it raises TypeError.
    """
    if isinstance(source, Image):
        return source
    if isinstance(source, NetworkInput):
        raise TypeError("the input of a network has no pixels")
    decoded = decode(source.data.tobytes(), max_pixels=source.n_pixels).image
    assert isinstance(decoded, Image)
    return decoded


def _by_simplejpeg(data: bytes, header: Header, new_pixels: NewPixels) -> Pixels | None:
    """Return upright pixels, or None if simplejpeg reports any doubt, warnings included.

    Raises Undecodable for a file with pixels missing.
    """
    info = header.info
    grey = info.mode == "L"
    swapped = info.orientation >= 5
    size = (info.width, info.height) if swapped else (info.height, info.width)
    shape = (*size, 1 if grey else 3)
    # A buffer of the size that was checked: the decoder can never allocate by another header.
    pixels = new_pixels(shape) if info.orientation == 1 else np.empty(shape, np.uint8)
    space = "GRAY" if grey else "RGB"
    stream = closed(data) if header.coefficients else data
    try:
        decoded = simplejpeg.decode_jpeg(stream, space, buffer=pixels)
    except ValueError:
        try:
            decoded = simplejpeg.decode_jpeg(closed(data), space, buffer=pixels)
        except ValueError as error:
            check_warning(error)
            return None
    if decoded.shape != pixels.shape:
        return None
    if not is_srgb(header.icc_profile, grey=grey):
        convert_in_place(pixels, header.icc_profile, grey=grey)
    return upright(pixels, info.orientation, new_pixels)


def _by_pillow(data: bytes, header: Header, new_pixels: NewPixels) -> Decoded:
    format_ = header.info.format
    metadata = Metadata(header.info.orientation, header.copyright, header.exif)
    with reading(format_):
        image = header.image or open_image(data, format_)
        if format_ is ImageFormat.JPEG and (stream := whole(data, image.mode)) is not data:
            image = open_image(stream, format_)
        rows = loaded(image)
        if format_ is ImageFormat.PNG:
            image._exif = None  # of before the pixels; it may stand behind them
            metadata = read_metadata(image)
            check_rows(data, image)
            scale_transparency(image, depth=data[_PNG_DEPTH])
        if format_ is ImageFormat.TIFF:
            check_jpegs(data, image)
        # Pillow turns TIFFs while loading.
        orientation = 1 if format_ is ImageFormat.TIFF else metadata.orientation
        pixels = converted(rows, header.icc_profile, orientation, new_pixels)
    height, width = pixels.shape[:2]
    info = replace(header.info, width=width, height=height, orientation=metadata.orientation)
    return Decoded(Image(pixels), info, metadata.copyright, metadata.exif)


def _all_frames(data: bytes, header: Header, new_pixels: NewPixels) -> Decoded:
    info = header.info
    shape = info.stack, info.height // info.stack, info.width
    with reading(info.format):
        image = header.image or open_image(data, info.format)
        pixels, animation = read_frames(
            data, image, shape, header.icc_profile, info.orientation, new_pixels
        )
    return Decoded(Image(pixels), info, header.copyright, header.exif, animation)


def plain_header(data: bytes, found: BaselineJpeg, max_pixels: int) -> Header:
    """Return the same as `read_header`; Pillow (0.1 to 0.5 ms) runs for unusual metadata only."""
    read = of_segments(data, found.metadata)
    if read is None or found.width * found.height > max_pixels:
        cost = check_jpeg(data, max_pixels, one_scan=True)
        return opened_header(data, ImageFormat.JPEG, max_pixels, cost)
    (orientation, notice, exif), profile = read
    width, height = found.width, found.height
    if orientation in SWAPPED:
        width, height = height, width
    mode = "L" if found.subsampling is Subsampling.GREY else "RGB"
    info = ImageInfo(ImageFormat.JPEG, width, height, orientation, 1, mode, fast_jpeg=True)
    return Header(info, profile, notice, exif)


_PREPARED = deque[bytes](maxlen=16)
"""Profiles of JPEGs that were left encoded: how to convert from them is cached."""


class NewProfile(Exception):
    """To prepare the conversion from a profile takes up to 20 ms, and was not asked for."""


def encoded(data: bytes, *, max_pixels: int, prepare: bool = True) -> Decoded | None:
    """Return a baseline JPEG, whole and well formed; None for files that must be decoded here.

    All JPEGs with restart markers must be decoded here. Surplus bytes before a restart marker
    cannot be seen without decoding; a hardware decoder silently makes pixels of them that differ
    from libjpeg-turbo's, and a check by decoding at an eighth of the size takes 71 % of the time of
    decoding. Of 196 photos 13 have restart markers.

    Raises the errors of `read_header`, and without `prepare` NewProfile for a profile that none of
    the last JPEGs had.
    """
    found = inspect(data)
    if found is None or found.restarts:
        return None
    info, profile, notice, exif, *_ = plain_header(data, found, max_pixels)
    if not info.fast_jpeg or (profile and not is_matrix_profile(profile)):
        return None  # only such a profile is certain to be cheap
    grey, shaper = info.mode == "L", None
    if profile:
        if not prepare and profile not in _PREPARED:
            raise NewProfile
        as_srgb = is_srgb(profile, grey=grey)
        shaper = None if as_srgb or grey else matrix_shaper(profile)
        if profile not in _PREPARED:
            _PREPARED.append(profile)
        if shaper is None and not as_srgb:
            return None
    stream = np.frombuffer(data, np.uint8, found.length)
    jpeg = Jpeg(stream, info.height, info.width, info.orientation, found.subsampling, shaper)
    return Decoded(jpeg, info, notice, exif)
