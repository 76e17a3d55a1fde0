"""Read a file's metadata: orientation, copyright, and the unparsed EXIF block.

EXIF is read through Pillow; broken metadata count as absent.
"""

from contextlib import suppress
from typing import NamedTuple

from PIL import Image as PillowImage

from models.codec.bounds.exif import affordable
from models.codec.encoding.exif import MAX_BLOCK
from models.codec.notice import XMP, notices

MAX_COPYRIGHT = 1000
"""Characters kept; an EXIF block in a JPEG holds 64 KiB in all."""

_XMP = frozenset({"xmp", "XML:com.adobe.xmp"})
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
    _set_xmp_aside(image)
    block = image.info.get("exif")
    if isinstance(block, bytes) and not affordable(block):
        return Metadata(copyright=_first_notice(image))
    orientation, notice = 1, None
    with suppress(Exception):  # the pixels are good whatever the metadata holds
        # The base class's method: that of PNG decodes the pixels to look for EXIF behind them.
        exif = PillowImage.Image.getexif(image)
        orientation, notice = exif.get(_ORIENTATION, 1), _notice(exif.get(_COPYRIGHT))
    return Metadata(
        int(orientation) if orientation in range(1, 9) else 1,
        notice or _first_notice(image),
        block if isinstance(block, bytes) and len(block) <= MAX_BLOCK else None,
    )


def _first_notice(image: PillowImage.Image) -> str | None:
    return next(filter(None, map(_plain, notices(image))), None)


def _set_xmp_aside(image: PillowImage.Image) -> None:
    """Hide XMP from Pillow, which would turn the image by its orientation: EXIF's alone counts."""
    for key in _XMP & image.info.keys():
        image.info[XMP] = image.info.pop(key)


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
    return _plain(value)


def _plain(notice: str) -> str | None:
    return notice.replace("\0", " ").strip()[:MAX_COPYRIGHT] or None
