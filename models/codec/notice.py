"""Find the copyright notice of a file that has none in EXIF: in IPTC, XMP, or the text of a PNG.

IPTC-IIM 4.2, dataset 2:116; XMP part 1, dc:rights, read by patterns: nothing is expanded.
"""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

from PIL import Image as PillowImage

XMP = "darkroom XMP"
"""The key under which XMP is kept in the `info` of Pillow's images."""

MAX_XMP = 1 << 20
"""Bytes of XMP that are searched, from its beginning."""

_IPTC_RESOURCE = 0x0404
_DATASETS = 1000
_NOTICE = b"\x1c\x02\x74"

_PREFIX = re.compile(rb"xmlns:([\w-]{1,64})\s*=\s*[\"']http://purl\.org/dc/elements/1\.1/[\"']")
_DEFAULT = rb"<[^<>]*xml:lang\s*=\s*[\"']x-default[\"'][^<>]*>([^<]+)<"
_FIRST = rb">\s*([^<\s][^<]*)<"


def notices(image: PillowImage.Image) -> Iterator[str]:
    """Yield the notices of an image, IPTC first; some may be empty."""
    yield _iptc(_resources(image).get(_IPTC_RESOURCE))
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
