"""Convert what a decoder process answers to the words of `models`; trusts none of its values."""

import asyncio
import os

from app.decoders.frames import Broken, Failed, Info, Pixels
from app.decoders.memory import mapped
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
    """The header; raises Broken for values that no header has."""
    try:
        format_ = ImageFormat(frame.format)
    except ValueError as error:
        raise Broken("an unknown format") from error
    if min(frame.width, frame.height, frame.frames) < 1 or not 1 <= frame.orientation <= 8:
        raise Broken("an impossible header")
    return ImageInfo(
        format_,
        frame.width,
        frame.height,
        frame.orientation,
        frame.frames,
        frame.mode,
        frame.fast_jpeg,
    )


def error_from(frame: Failed) -> ServiceError:
    """The image's own error."""
    return _ERRORS.get(frame.code, Undecodable)(frame.detail)


async def decoded_from(frame: Pixels, memory: int, max_pixels: int, inline: int) -> Decoded:
    """The image over the decoder's memory file, which is closed; raises Broken for a wrong one."""
    height, width, channels = frame.shape
    size, exif_size = height * width * channels, frame.exif or 0
    try:
        if min(frame.shape) < 1 or height * width > max_pixels or exif_size < 0:
            raise Broken("an impossible image")
        if size + exif_size <= inline:
            data = mapped(memory, size + exif_size)
        else:
            data = await asyncio.to_thread(mapped, memory, size + exif_size)
        image = Image(data[:size].reshape(frame.shape))
    except (ValueError, OSError) as error:
        raise Broken("an impossible image") from error
    finally:
        os.close(memory)
    exif = None if frame.exif is None else data[size:].tobytes()
    return Decoded(image, info_from(frame.info), frame.copyright, exif)
