"""The image that is assumed before a header is read, so that most images need only one hand-over to
a thread or a process.
"""

from collections.abc import Callable

from app.decoders import Seen, Unasked
from app.intake.spool import Blob
from models import codec
from models.codec import ImageFormat, ImageInfo, identify

SIZE = (1250, 1600)
"""Height and width of the assumed image."""

MAGIC = 16
"""Number of bytes that distinguish a JPEG from other formats."""

_SHARES = (1, 2, 4)
"""Divisors of the sides of a typical image, for the sizes that processes may decode unasked."""


def typical_image(format_: ImageFormat, mode: str, share: int = 1, size: int = 0) -> Seen:
    """Return the header of the assumed image, of which the sides are divided by `share`, in a file
    of `size` bytes.
    """
    height, width = SIZE[0] // share, SIZE[1] // share
    info = ImageInfo(format_, width, height, 1, 1, mode, fast_jpeg=False)
    return Seen(info, 0.0, codec.decode_memory(info, size))


TYPICAL_JPEG = typical_image(ImageFormat.JPEG, "RGB")


def decoded_unasked(accept: Callable[[Seen], bool], content: Blob) -> Unasked:
    """Return the largest sizes of typical images that are accepted whatever else they contain: they
    need no memory that has to be waited for, so a process decodes them before it asks.
    """
    format_ = identify(content.start(MAGIC)) or ImageFormat.PNG

    def most(mode: str) -> int:
        headers = (typical_image(format_, mode, share, content.size) for share in _SHARES)
        return next((seen.info.n_pixels for seen in headers if accept(seen)), 0)

    return Unasked(most("RGB"), most("RGBA"))
