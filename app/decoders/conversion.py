"""Convert the answers of a decoder process to the types of `models`; none of them is trusted."""

import math

import numpy as np
from numpy.typing import NDArray

from app.decoders.frames import Broken, Failed, Info, Pixels
from models.codec import Decoded, ImageFormat, ImageInfo
from models.domain.errors import (
    InvalidParameter,
    ServiceError,
    TooManyPixels,
    Undecodable,
    Unprocessable,
    UnsupportedMedia,
)
from models.domain.image import Image

_ERRORS: dict[str, type[ServiceError]] = {
    each.code: each
    for each in (Undecodable, TooManyPixels, UnsupportedMedia, Unprocessable, InvalidParameter)
}


def info_from(frame: Info) -> ImageInfo:
    """Return the header; raises Broken for values that no header has."""
    try:
        format_ = ImageFormat(frame.format)
    except ValueError as error:
        raise Broken("an unknown format") from error
    if min(frame.width, frame.height, frame.frames) < 1 or not 1 <= frame.orientation <= 8:
        raise Broken("an impossible header")
    if not 0 <= frame.cost < math.inf:
        raise Broken("an impossible cost")
    return ImageInfo(
        format_,
        frame.width,
        frame.height,
        frame.orientation,
        frame.frames,
        frame.mode,
        frame.fast_jpeg,
        frame.transparent,
    )


def error_from(frame: Failed) -> ServiceError:
    """Return the image's own error."""
    return _ERRORS.get(frame.code, Undecodable)(frame.detail)


def pixels_size(frame: Pixels, max_pixels: int) -> int:
    """Return the bytes of an answer, pixels and EXIF.

    Raises Broken for those that cannot be, and for another shape than the header's, by which memory
    was reserved.
    """
    height, width, channels = frame.shape
    header, exif_size = info_from(frame.info), frame.exif or 0
    if min(frame.shape) < 1 or height * width > max_pixels or exif_size < 0:
        raise Broken("an impossible image")
    if (height, width) != (header.height, header.width) or channels > header.most_channels:
        raise Broken("an image of another shape than its header states")
    return height * width * channels + exif_size


def same_size(frame: Info, accepted: Info) -> bool:
    """Return whether an image has the pixels, and no more channels, of the header accepted before.

    The sides may be swapped: a PNG may have its orientation after its pixels.
    """
    sides = sorted((frame.width, frame.height)), sorted((accepted.width, accepted.height))
    channels = info_from(frame).most_channels, info_from(accepted).most_channels
    return sides[0] == sides[1] and channels[0] <= channels[1]


def decoded_from(frame: Pixels, info: ImageInfo, data: NDArray[np.uint8]) -> Decoded:
    """Return the image whose pixels, and then EXIF, are `data`; raises Broken."""
    height, width, channels = frame.shape
    size = height * width * channels
    try:
        image = Image(data[:size].reshape(frame.shape))
    except ValueError as error:
        raise Broken("an impossible image") from error
    exif = None if frame.exif is None else data[size:].tobytes()
    return Decoded(image, info, frame.copyright, exif)
