"""PNG: the number of chunks. Pillow itself bounds what text and profiles inflate to.

Pixels stop inflating at the last row, so a bomb behind them costs nothing; an animation's other
frames are not decoded.
"""

import struct

from models.codec.bounds.exif import affordable
from models.codec.bounds.refusal import too_large, too_many, too_much_exif

MAX_CHUNKS = 10_000
_BYTES_PER_CHUNK = 1 << 10
"""One more chunk is allowed for this number of bytes; encoders write chunks of 8 KiB or more."""

MAX_PROFILES = 16
"""Colour profiles, at most: a file has one, and readers inflate each of them, to a megabyte."""

_PER_PIXEL = 20e-9
_SIGNATURE = 8
_HEAD = struct.Struct(">I4s")
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the type of colour in IHDR
_ROWS = 2  # Pillow keeps the last row beside the present one


def check_png(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for too many pixels or chunks."""
    if data[12:16] == b"IHDR" and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        if width * height > max_pixels:
            raise too_large(width, height, max_pixels)
    most = MAX_CHUNKS + len(data) // _BYTES_PER_CHUNK
    at, last, profiles = _SIGNATURE, len(data) - _HEAD.size, 0
    for _ in range(most):
        if at > last:
            return _PER_PIXEL
        length, name = _HEAD.unpack_from(data, at)
        if name == b"eXIf" and not affordable(data[at + 8 : at + 8 + length]):
            raise too_much_exif("PNG")
        profiles += name == b"iCCP"
        if profiles > MAX_PROFILES:
            found, allowed = f"more than {MAX_PROFILES} colour profiles", "a file has one"
            raise too_many("PNG", found, allowed)
        if name == b"IEND":
            return _PER_PIXEL
        at += length + 12
    raise too_many("PNG", f"more than {most:,} chunks", f"a file of its size has at most {most:,}")


def png_buffers(data: bytes, pixels: int, *, alpha: bool) -> int:
    """Return the bytes of the rows that Pillow keeps beside its picture of `pixels` pixels.

    They are few unless the picture is very wide: then they are larger than the picture. A picture
    of 16-bit RGB with a transparent colour is decoded twice, and gets alpha.
    """
    if data[12:16] != b"IHDR" or len(data) < 26:
        return 8 * _ROWS * pixels
    width, depth, colour = int.from_bytes(data[16:20], "big"), data[24], data[25]
    twice = 12 * pixels if alpha and (depth, colour) == (16, 2) else 0
    return twice + _ROWS * -(-width * depth * _SAMPLES.get(colour, 4) // 8)
