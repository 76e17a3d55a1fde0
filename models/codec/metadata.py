"""Read a file's metadata: orientation, copyright, and the unparsed EXIF block.

EXIF is read through Pillow; broken metadata count as absent.
"""

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from PIL import Image as PillowImage

from models.codec.exif import MAX_BLOCK, affordable

MAX_COPYRIGHT = 1000
"""Characters kept; an EXIF block in a JPEG holds 64 KiB in all."""

_XMP = frozenset({"xmp", "XML:com.adobe.xmp"})
_ORIENTATION = 0x0112
_COPYRIGHT = 0x8298


class Metadata(NamedTuple):
    """Orientation as in EXIF (1 is upright, 5 to 8 swap width and height), and the copyright.

    `exif` is the block as it is in the file, unchecked; None in formats without EXIF, and for a
    block that is too large to be kept.
    """

    orientation: int = 1
    copyright: str | None = None
    exif: bytes | None = None


def read_metadata(image: PillowImage.Image) -> Metadata:
    """Return the metadata that Pillow has read of `image` so far; decode no pixels."""
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


# The copyright of a file that has none in EXIF: IPTC-IIM 4.2, dataset 2:116; XMP part 1, dc:rights,
# read by patterns, so that nothing is expanded; or the text of a PNG.

XMP = "darkroom XMP"
"""The key under which XMP is kept in the `info` of Pillow's images."""

MAX_XMP = 1 << 20
"""Bytes of XMP that are searched, from its beginning."""

_IPTC_RESOURCE, _IPTC_OF_TIFF = 0x0404, 33723
_DATASETS = 1000
_NOTICE = b"\x1c\x02\x74"

_PREFIX = re.compile(rb"xmlns:([\w-]{1,64})\s*=\s*[\"']http://purl\.org/dc/elements/1\.1/[\"']")
_DEFAULT = rb"<[^<>]*xml:lang\s*=\s*[\"']x-default[\"'][^<>]*>([^<]+)<"
_FIRST = rb">\s*([^<\s][^<]*)<"


def notices(image: PillowImage.Image) -> Iterator[str]:
    """Yield the notices of an image, IPTC first; some may be empty."""
    tags = getattr(image, "tag_v2", {})
    yield _iptc(_resources(image).get(_IPTC_RESOURCE) or tags.get(_IPTC_OF_TIFF))
    yield _rights(image.info.get(XMP))
    if image.format == "PNG":
        text = image.info.get("Copyright")
        yield text if isinstance(text, str) else ""


def _resources(image: PillowImage.Image) -> Mapping[Any, Any]:
    found = image.info.get("photoshop")
    return found if isinstance(found, dict) else {}


def _iptc(block: object) -> str:
    at = 0
    for _ in range(_DATASETS if isinstance(block, bytes) else 0):
        assert isinstance(block, bytes)
        head, size = block[at : at + 3], int.from_bytes(block[at + 3 : at + 5], "big")
        if not head.startswith(b"\x1c") or size >= 1 << 15:
            break
        at += 5 + size
        if head == _NOTICE:
            return _text(block[at - size : at])
    return ""


def _rights(xmp: object) -> str:
    """Return the default notice of dc:rights, or the first."""
    data = (xmp.encode(errors="replace") if isinstance(xmp, str) else xmp) or b""
    if not isinstance(data, bytes) or (prefix := _PREFIX.search(data[:MAX_XMP])) is None:
        return ""
    data, name = data[:MAX_XMP], re.escape(prefix[1]) + b":rights"
    start = re.search(rb"<" + name + rb"[\s>]", data)
    if start is not None:
        element = data[
            start.start() : max(0, data.find(b"</" + prefix[1] + b":rights", start.end()))
        ]
        found = re.search(_DEFAULT, element + b"<") or re.search(_FIRST, element + b"<")
    else:
        found = re.search(rb"\s" + name + rb"\s*=\s*[\"']([^\"'<]+)", data)
    return html.unescape(_text(found[1])) if found else ""


def _text(stored: bytes) -> str:
    """Return text in UTF-8, or in Latin-1 where it is none."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored.decode("latin-1")
