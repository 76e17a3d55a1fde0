"""Read a file's header before a pixel is decoded: the first check of every image.

Names, content types and the header itself are not trusted.
"""

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple

from PIL.Image import DecompressionBombError
from PIL.ImageFile import ImageFile

from models.codec.animation import count_frames
from models.codec.containers import avif_buffers, canvas, heif_buffers, properties
from models.codec.formats import ImageFormat, identify
from models.codec.jpeg import check_jpeg, has_several_scans, too_large
from models.codec.metadata import read_metadata
from models.codec.pillow import open_image, reading
from models.codec.png import png_buffers
from models.codec.rows import SHOWN
from models.codec.stripes import frame_of
from models.codec.tiff import camera_raw, tiff_buffers
from models.domain.errors import UnsupportedMedia

SWAPPED = range(5, 9)
_BYTES_OF_HIDDEN = 10

_GREY = frozenset(("1", "L", "I", "I;16", "I;16B", "I;16L", "F"))
_COLOUR = frozenset(("RGB", "CMYK", "YCbCr", "LAB", "HSV"))


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The properties of an image file by its header.

    `width` and `height` describe the upright image, in pixels; `orientation` is EXIF's, 1…8.
    `frames` is the header's count; GIF and TIFF have no count, for them 2 means "several". `mode`
    is Pillow's name for the stored pixels. `fast_jpeg`: a grey or three-component 8-bit JPEG, which
    a JPEG decoder may read without Pillow's help. `transparent`: the pixels get alpha whatever the
    mode is, as of a PNG or a GIF that names a transparent colour. `stack`: the frames that are
    decoded, one below the other; `height` is that of all of them together.
    """

    format: ImageFormat
    width: int
    height: int
    orientation: int
    frames: int
    mode: str
    fast_jpeg: bool
    transparent: bool = False
    stack: int = 1

    @property
    def n_pixels(self) -> int:
        """Return width times height."""
        return self.width * self.height

    @property
    def most_channels(self) -> int:
        """Return the channels of the pixels; 4 where the header leaves open if they have alpha."""
        if self.transparent:
            return 4
        return 1 if self.mode in _GREY else 3 if self.mode in _COLOUR else 4


class Header(NamedTuple):
    """The part of a header that decoding needs; `icc_profile` and `exif` are as embedded,
    unchecked.

    `image` is Pillow's view of the file, from which the pixels can still be loaded, once.
    """

    info: ImageInfo
    icc_profile: bytes | None
    copyright: str | None
    exif: bytes | None
    image: ImageFile | None = None
    seconds_per_pixel: float = 0.0
    coefficients: float = 0.0
    """Bytes per pixel that a JPEG of several scans needs before its pixels can be computed."""
    buffers: int = 0
    """Bytes that the decoder allocates beside its picture, as for a tile of a TIFF."""


def read_header(data: bytes, max_pixels: int, *, all_frames: bool = False) -> Header:
    """Return the header of a file, whose cost of reading is checked first; decode no pixel.

    `all_frames`: the frames of an animation are counted, and all of them will be decoded.

    Raises UnsupportedMedia (empty, or an unknown format), TooManyPixels (over `max_pixels`, or over
    Pillow's own ceiling of 178,956,970) and Undecodable (a known format with a broken header).
    """
    if not data:
        raise UnsupportedMedia("the image is empty: 0 bytes")
    if (kind := camera_raw(data)) is not None:
        raise UnsupportedMedia(
            f"the file is a camera raw file ({kind}), which has no finished picture; "
            "convert it to JPEG, TIFF or AVIF with the camera maker's program and send that"
        )
    format_ = identify(data)
    if format_ is None:
        known = ", ".join(f.name for f in ImageFormat)
        raise UnsupportedMedia(f"the bytes are not an image of a format read here: {known}")
    cost = check_jpeg(data, max_pixels) if format_ is ImageFormat.JPEG else _PER_PIXEL[format_]
    if format_ in (ImageFormat.WEBP, ImageFormat.HEIF):  # which libraries allocate when they open
        width, height = stated_size(data, format_)
        if width * height > max_pixels:
            raise too_large(width, height, max_pixels)
    return opened_header(data, format_, max_pixels, cost, all_frames=all_frames)


def opened_header(
    data: bytes, format_: ImageFormat, max_pixels: int, cost: float, *, all_frames: bool = False
) -> Header:
    """Return the header of a file that has been checked, and takes `cost` CPU seconds a pixel."""
    with reading(format_):
        try:
            image = open_image(data, format_)
        except DecompressionBombError:  # without a size, which most headers state at their start
            width, height = stated_size(data, format_)
            if width * height > max_pixels:
                raise too_large(width, height, max_pixels) from None
            raise
        width, height = image.size
        if width * height > max_pixels:
            raise too_large(width, height, max_pixels)
        stored_pixels = getattr(image, "stored_pixels", width * height)
        described = _describe(image, format_)
        info = described.info
        if all_frames and (n := count_frames(data, image, info.frames, max_pixels)) > 1:
            info = replace(info, height=n * info.height, transparent=True, stack=n)
            described = described._replace(info=info)
            cost *= 2  # Pillow composes each frame
        stored = _coefficients(image, cost) if format_ is ImageFormat.JPEG else 0.0
        alpha = described.info.transparent
        beside = 0
        match format_:
            case ImageFormat.PNG:
                beside = png_buffers(data, stored_pixels)
            case ImageFormat.TIFF:
                beside = tiff_buffers(data, stored_pixels)
            case ImageFormat.AVIF:
                beside = avif_buffers(data, stored_pixels, alpha=alpha)
            case ImageFormat.HEIF:
                beside = heif_buffers(data, stored_pixels)
        pixels = max(1, described.info.n_pixels)
        if hidden := max(0, stored_pixels - pixels):  # of an AVIF or a HEIF, decoded and cut
            beside += _BYTES_OF_HIDDEN * hidden
            cost *= stored_pixels / pixels
        return described._replace(seconds_per_pixel=cost, coefficients=stored, buffers=beside)


def _describe(image: ImageFile, format_: ImageFormat) -> Header:
    orientation, copyright_, exif = read_metadata(image)
    if format_ is ImageFormat.HEIF:  # turned by libheif
        orientation = 1
    width, height = image.size
    if shown := image.info.get(SHOWN):
        width, height = shown.right - shown.left, shown.bottom - shown.top
    if orientation in SWAPPED and format_ is not ImageFormat.TIFF:  # which Pillow has turned
        width, height = height, width
    fast = format_ is ImageFormat.JPEG and image.mode in ("L", "RGB")
    frames = _frames(image, format_)
    alpha = image.has_transparency_data or frame_of(image) is not None
    info = ImageInfo(format_, width, height, orientation, frames, image.mode, fast, alpha)
    profile = image.info.get("icc_profile")
    profile = profile if isinstance(profile, bytes) else None
    return Header(info, profile, copyright_, exif, image)


def _coefficients(image: ImageFile, cost: float) -> float:
    """Return the bytes per pixel of all coefficients, 16 bits each, if libjpeg has to keep them."""
    if not (image.info.get("progressive") or has_several_scans(cost)):
        return 0.0
    planes = [(h, v) for _, h, v, _ in getattr(image, "layer", ())]
    widest = max((h for h, _ in planes), default=1)
    highest = max((v for _, v in planes), default=1)
    return float(2 * sum(h * v for h, v in planes) / (widest * highest))


def _frames(image: ImageFile, format_: ImageFormat) -> int:
    if format_ not in (ImageFormat.GIF, ImageFormat.TIFF):
        return int(getattr(image, "n_frames", 1))
    try:
        return 2 if getattr(image, "is_animated", False) else 1
    except Exception:  # the first frame: whatever is broken behind it does not matter
        return 1


_PER_PIXEL = {
    ImageFormat.PNG: 20e-9,
    ImageFormat.WEBP: 25e-9,
    ImageFormat.GIF: 20e-9,
    ImageFormat.BMP: 10e-9,
    ImageFormat.TIFF: 20e-9,
    ImageFormat.AVIF: 60e-9,
    ImageFormat.HEIF: 40e-9,
}
"""CPU seconds a pixel of usual files of all formats but JPEG. The limit of CPU time of a process
ends the unusual: run lengths, the scans of a JPEG in a TIFF, and a HEIF of many bytes a pixel."""


def stated_size(data: bytes, format: ImageFormat) -> tuple[int, int]:
    """Return the stored width and height that the first bytes of a file state, unchecked.

    Both are 0 for a JPEG, for a TIFF and for a file whose first bytes are broken.
    """
    try:
        match format:
            case ImageFormat.PNG if data[12:16] == b"IHDR":
                return struct.unpack_from(">II", data, 16)
            case ImageFormat.GIF:
                return struct.unpack_from("<HH", data, 6)
            case ImageFormat.BMP if data[14:15] == b"\x0c":  # OS/2: 16 bits for each side
                return struct.unpack_from("<HH", data, 18)
            case ImageFormat.BMP:
                width, height = struct.unpack_from("<ii", data, 18)
                return abs(width), abs(height)  # a negative height: the first row is the top row
            case ImageFormat.WEBP:
                return canvas(data)
            case ImageFormat.AVIF | ImageFormat.HEIF:
                extents = [content for name, content in properties(data) if name == b"ispe"]
                return struct.unpack_from(">II", extents[0], 4) if extents else (0, 0)
    except struct.error:  # the file is shorter than its header should be
        pass
    return 0, 0
