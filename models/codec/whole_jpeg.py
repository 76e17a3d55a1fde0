"""Tell JPEGs with all their pixels from JPEGs that were cut, wherever their markers stand.

A phone may write no EOI, and a cut file may have one. libjpeg-turbo fills up missing data and warns
of it, so the warning decides, of a stream that was closed behind its last scan.
"""

import re

import simplejpeg

from models.codec.jpeg_scan import whole_stream
from models.domain.errors import Undecodable

_MISSING = re.compile("premature end of data segment|found marker 0xd9 instead of RST")
"""The warnings of libjpeg for a scan that ends before its last block."""


def closed(data: bytes) -> bytes:
    """Return a JPEG that ends with an EOI behind its last scan; raises Undecodable if one lacks."""
    stream = whole_stream(data)
    if stream is None:
        raise _cut()
    return stream


def check_warning(warning: object) -> None:
    """Raise Undecodable if libjpeg warns, of a closed stream, of missing data."""
    if _MISSING.search(str(warning)):
        raise _cut()


def whole(data: bytes, mode: str) -> bytes:
    """Return the closed stream of a JPEG; raise Undecodable if pixels of it are missing.

    All its data are decoded, at an eighth of the size. `mode` is Pillow's.
    """
    stream = closed(data)
    try:
        simplejpeg.decode_jpeg(stream, "CMYK" if mode == "CMYK" else "GRAY", min_factor=8)
    except ValueError as error:
        check_warning(error)
    return stream


def _cut() -> Undecodable:
    return Undecodable(
        "the JPEG is truncated: the data of some of its pixels are missing; send the whole file"
    )
