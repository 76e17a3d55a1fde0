"""The image formats that Darkroom reads and writes, recognised by their first bytes alone.

File names and content types are not used, because they may be wrong.
"""

import re
from enum import StrEnum

from PIL import features


class ImageFormat(StrEnum):
    """A format that can be read; the names of the members are Pillow's. HEIC is a kind of HEIF."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    GIF = "gif"
    BMP = "bmp"
    TIFF = "tiff"
    AVIF = "avif"
    HEIF = "heif"

    @property
    def media_type(self) -> str:
        """Return the media type for a Content-Type header."""
        return f"image/{self.value}"

    @property
    def extension(self) -> str:
        """Return the extension of file names, with the dot."""
        return ".jpg" if self is ImageFormat.JPEG else f".{self.value}"


OUTPUT_FORMATS = tuple(map(ImageFormat, ("gif", "jpeg", "png", "webp", "avif")))
"""All formats that Darkroom writes, the one list of them; the last is the most preferred.

The `format` option, the command line, negotiation and the OpenAPI document derive from it.
"""

ENCODABLE = tuple(
    each for each in OUTPUT_FORMATS if each is not ImageFormat.AVIF or features.check("avif")
)
"""The output formats that this machine can write: AVIF needs a Pillow that was built with it."""

ANIMATED = (ImageFormat.GIF, ImageFormat.PNG, ImageFormat.WEBP)
"""The formats whose animations are read and written frame by frame."""

# AVIF is an ISO base media file that lists "avif" or "avis" among its brands; HEIF starts the same
# and lists brands of HEVC, or of HEIF without a codec.
_MAGIC = re.compile(
    rb"(?P<JPEG>\xff\xd8\xff)"
    rb"|(?P<PNG>\x89PNG\r\n\x1a\n)"
    rb"|(?P<WEBP>RIFF.{4}WEBP)"
    rb"|(?P<GIF>GIF8[79]a)"
    rb"|(?P<BMP>BM)"
    rb"|(?P<TIFF>II[*+]\0|MM\0[*+]|II\0\*|MM\*\0)"
    rb"|(?P<AVIF>.{4}ftyp(?:.{4}){0,15}?avi[fs])"
    rb"|(?P<HEIF>.{4}ftyp(?:.{4}){0,15}?(?:he[iv][cxms]|m[is]f1))",
    re.DOTALL,
)


def identify(data: bytes) -> ImageFormat | None:
    """Return the format whose magic number `data` starts with, or None for unknown formats."""
    match = _MAGIC.match(data)
    return ImageFormat[str(match.lastgroup)] if match else None
