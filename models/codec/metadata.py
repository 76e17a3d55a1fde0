"""Read a file's metadata: orientation, copyright, and the unparsed EXIF block.

EXIF is read through Pillow, which also reads XMP; broken metadata count as absent.
"""

from contextlib import suppress
from typing import NamedTuple

from PIL import Image as PillowImage

from models.codec.bounds.exif import affordable
from models.codec.encoding.exif import MAX_BLOCK

MAX_COPYRIGHT = 1000
"""Characters kept; an EXIF block in a JPEG holds 64 KiB in all."""

_ORIENTATION = 0x0112
_COPYRIGHT = 0x8298


class Metadata(NamedTuple):
    """Orientation as in EXIF (1 is upright, 5 to 8 swap width and height), and the copyright.

    `exif` is the block as it is in the file, unchecked; None in formats that have no such block,
    and for one that is too large to be kept.
    """

    orientation: int = 1
    copyright: str | None = None
    exif: bytes | None = None


def read_metadata(image: PillowImage.Image) -> Metadata:
    """Return what Pillow has read of `image` so far; decode no pixels."""
    block = image.info.get("exif")
    if isinstance(block, bytes) and not affordable(block):
        return Metadata()
    try:
        # The base class's method: that of PNG decodes the pixels to look for EXIF behind them.
        exif = PillowImage.Image.getexif(image)
        orientation, notice = exif.get(_ORIENTATION, 1), exif.get(_COPYRIGHT)
    except Exception:  # the image: its pixels are good whatever its metadata holds
        return Metadata()
    upright = orientation not in range(1, 9)
    return Metadata(
        1 if upright else int(orientation),
        _notice(notice),
        block if isinstance(block, bytes) and len(block) <= MAX_BLOCK else None,
    )


def copyright_exif(notice: str) -> bytes:
    r"""Return an EXIF block, `Exif\0\0` included, that contains only this copyright in UTF-8."""
    exif = PillowImage.Exif()
    exif[_COPYRIGHT] = notice[:MAX_COPYRIGHT].encode(errors="replace")
    return exif.tobytes()


def _notice(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    with suppress(UnicodeError):  # EXIF says ASCII, the world writes UTF-8, Pillow reads Latin-1
        value = value.encode("latin-1").decode()
    return value.replace("\0", " ").strip()[:MAX_COPYRIGHT] or None
