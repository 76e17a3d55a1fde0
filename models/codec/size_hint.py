"""Guess the number of pixels of an image from the first bytes of its file, in microseconds.

The guess orders work that waits. Nothing is checked here: a file that lies is refused when it is
decoded, and every loop has a stated bound.
"""

import struct
from collections.abc import Callable

from models.codec.bounds.webp import size_in_chunk
from models.codec.formats import ImageFormat, identify

START = 1 << 16
"""Bytes of a file that are looked at."""

MOST_PARTS = 64
"""Segments of a JPEG, entries of a TIFF and boxes of an AVIF that are looked at."""

_SEGMENT = struct.Struct(">BBH")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WIDTH, _HEIGHT, _SHORT = 256, 257, 3


def claimed_pixels(start: bytes) -> int | None:
    """Return width times height by the first bytes of a file, None if they do not show it."""
    format_ = identify(start)
    if format_ is None:
        return None
    try:
        return _HINTS[format_](start)
    except struct.error:  # the file is shorter than its header should be
        return None


def _jpeg(data: bytes) -> int | None:
    at = 2
    for _ in range(MOST_PARTS):
        mark, marker, size = _SEGMENT.unpack_from(data, at)
        if mark != 0xFF:
            return None
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return int(height * width)
        at += 2 + size
    return None


def _png(data: bytes) -> int:
    width, height = struct.unpack_from(">II", data, 16)
    return int(width * height)


def _gif(data: bytes) -> int:
    width, height = struct.unpack_from("<HH", data, 6)
    return int(width * height)


def _bmp(data: bytes) -> int:
    old = data[14:15] == b"\x0c"  # OS/2 headers have 16 bits for each side
    width, height = struct.unpack_from("<HH" if old else "<ii", data, 18)
    return int(abs(width * height))


def _webp(data: bytes) -> int | None:
    width, height = size_in_chunk(data[12:16], data[20:30])
    return width * height or None


def _tiff(data: bytes) -> int | None:
    order = "<" if data[:2] == b"II" else ">"
    (at,) = struct.unpack_from(order + "I", data, 4)
    (entries,) = struct.unpack_from(order + "H", data, at)
    sides = {}
    for number in range(min(entries, MOST_PARTS)):
        entry = at + 2 + 12 * number
        tag, type_ = struct.unpack_from(order + "HH", data, entry)
        if tag in (_WIDTH, _HEIGHT):
            code = "H" if type_ == _SHORT else "I"
            (sides[tag],) = struct.unpack_from(order + code, data, entry + 8)
    return int(sides[_WIDTH] * sides[_HEIGHT]) if len(sides) == 2 else None


def _avif(data: bytes) -> int | None:
    """Return the pixels of the largest item: a grid has a size of its own beside its tiles'."""
    most, at = 0, data.find(b"ispe")
    for _ in range(MOST_PARTS):
        if at < 0:
            break
        width, height = struct.unpack_from(">II", data, at + 8)
        most = max(most, width * height)
        at = data.find(b"ispe", at + 4)
    return most or None


_HINTS: dict[ImageFormat, Callable[[bytes], int | None]] = {
    ImageFormat.JPEG: _jpeg,
    ImageFormat.PNG: _png,
    ImageFormat.GIF: _gif,
    ImageFormat.BMP: _bmp,
    ImageFormat.WEBP: _webp,
    ImageFormat.TIFF: _tiff,
    ImageFormat.AVIF: _avif,
}
