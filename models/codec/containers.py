"""The parts of WebP, BMP, AVIF and HEIF files that Pillow does not read."""

import re
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.codec.rows import Box

# WebP: the canvas, which libwebp allocates when a file is opened, and the first frame. Layout: RFC
# 9649, sections 2.7.1.1 and 2.7.1.2.

_VP8X = 30
"""Bytes up to the end of the first chunk of an animation."""


def canvas(data: bytes) -> tuple[int, int]:
    """Return width and height by the first chunk of a file; 0 if it has none."""
    name, head = data[12:16], data[20:30]
    if len(head) < 10:
        return 0, 0
    if name == b"VP8X":
        return 1 + int.from_bytes(head[4:7], "little"), 1 + int.from_bytes(head[7:10], "little")
    if name == b"VP8L" and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if name == b"VP8 " and head[3:6] == b"\x9d\x01\x2a":
        sides = int.from_bytes(head[6:10], "little")
        return sides & 0x3FFF, sides >> 16 & 0x3FFF
    return 0, 0


def first_frame(data: bytes) -> Box | None:
    """Return the first frame of an animation that is smaller than the canvas, else None."""
    at = data.find(b"ANMF", _VP8X)
    if data[12:16] != b"VP8X" or not data[20] & 2 or at < 0:
        return None
    numbers = [int.from_bytes(data[n : n + 3], "little") for n in range(at + 8, at + 20, 3)]
    left, top = 2 * numbers[0], 2 * numbers[1]
    frame = Box(left, top, left + numbers[2] + 1, top + numbers[3] + 1)
    return None if frame == (0, 0, *canvas(data)) else frame


# BMP: the colour profile.

_HEADER, _V5 = 14, 124
_COLOURS, _PROFILE, _SIZE = _HEADER + 56, _HEADER + 112, _HEADER + 116
_EMBEDDED = b"DEBM"


def embedded_profile(data: bytes) -> bytes | None:
    """Return the ICC profile inside a BMP, unchecked."""
    if int.from_bytes(data[_HEADER : _HEADER + 4], "little") < _V5:
        return None
    if data[_COLOURS : _COLOURS + 4] != _EMBEDDED:
        return None
    start = _HEADER + int.from_bytes(data[_PROFILE : _PROFILE + 4], "little")
    size = int.from_bytes(data[_SIZE : _SIZE + 4], "little")
    return data[start : start + size] or None


# AVIF: the memory of planes, and the properties that Pillow does not apply: clap and nclx. Layout:
# ISO/IEC 14496-12, 8.11, and ISO/IEC 23008-12, 6.5.

_CONFIGURATION = re.compile(rb"av1C..(.)", re.DOTALL)
"""The configuration of a decoder (AV1-ISOBMFF 2.3), and its third byte."""

_HIGH = 0x40
"""The bit of 10 or 12 bits a sample in that byte; behind it stand three of chroma."""

_CHROMA = (2.0, 2.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0)
"""Samples of chroma for one of luma, by three bits: grey, half the width, half the height."""


def avif_buffers(data: bytes, pixels: int, *, alpha: bool) -> int:
    """Return the bytes of the planes of a picture before they are converted to RGB.

    The planes have the depth and the chroma of the finest configuration of a decoder in the file,
    or 16 bits in full chroma where the file has no configuration.
    """
    found = [each[0] for each in set(_CONFIGURATION.findall(data))]
    sample = 2 if any(each & _HIGH for each in found) or not found else 1
    chroma = max((_CHROMA[each >> 2 & 7] for each in found), default=2.0)
    return int(pixels * sample * (1 + chroma + alpha))


# HEIF: the memory by its chroma and depth, measured.

_HEVC_CONFIGURATION = re.compile(rb"hvcC.{16}(..)", re.DOTALL)
"""The configuration of a decoder (ISO/IEC 14496-15, 8.3.3.1), and its bytes of chroma and depth."""


def heif_buffers(data: bytes, pixels: int) -> int:
    """Return the bytes of planes beside Pillow's 4 bytes per pixel, by the finest configuration.

    Planes of more than 8 bits with more chroma than 4:2:0 are converted twice.
    """
    found = set(_HEVC_CONFIGURATION.findall(data))
    fine = any(chroma & 3 > 1 for chroma, _ in found) or not found
    deep = any(depth & 7 for _, depth in found) or not found
    return pixels * (15 if fine and deep else 8 if fine else 6)


# Properties of the primary item. A file that is broken here has no properties: libavif decides
# whether the file is decoded.

Property = tuple[bytes, bytes]
"""The name and the content of a box."""


def properties(data: bytes) -> list[Property]:
    """Return the properties of the primary item."""
    try:
        return _properties(data)
    except (struct.error, IndexError, StopIteration):
        return []


def clean_aperture(found: Sequence[Property], width: int, height: int) -> Box | None:
    """Return the part of the stored picture that is shown; None for the whole, or a wrong part."""
    body = next((content for name, content in found if name == b"clap"), b"")
    if len(body) != 32:
        return None
    numbers = struct.unpack(">IIIIiIiI", body)
    if 0 in numbers[1::2]:
        return None
    across, down, right, lower = (Fraction(*numbers[n : n + 2]) for n in range(0, 8, 2))
    left = (width - across) / 2 + right
    top = (height - down) / 2 + lower
    box = Box(int(left), int(top), int(left) + int(across), int(top) + int(down))
    inside = left >= 0 and top >= 0 and box.right <= width and box.bottom <= height
    return box if inside and across >= 1 and down >= 1 else None


def nclx(found: Sequence[Property]) -> tuple[int, int] | None:
    """Return primaries and transfer as code points."""
    for name, content in found:
        if name == b"colr" and content.startswith(b"nclx") and len(content) >= 8:
            return struct.unpack_from(">HH", content, 4)
    return None


def _properties(data: bytes) -> list[Property]:
    meta = _content(data, b"meta")[4:]
    primary = _content(meta, b"pitm")
    item = int.from_bytes(primary[4:6] if primary[0] == 0 else primary[4:8], "big")
    everything = _content(meta, b"iprp")
    known = list(boxes(_content(everything, b"ipco")))
    association = _content(everything, b"ipma")
    wide_items, wide_indexes = association[0] > 0, association[3] & 1
    (entries,), at = struct.unpack_from(">I", association, 4), 8
    for _ in range(min(entries, len(association))):
        (number,) = struct.unpack_from(">I" if wide_items else ">H", association, at)
        at += 4 if wide_items else 2
        size = association[at] * (2 if wide_indexes else 1)
        indexes = association[at + 1 : at + 1 + size]
        at += 1 + size
        if number == item:
            kind, mask = (">H", 0x7FFF) if wide_indexes else (">B", 0x7F)
            chosen = [each & mask for (each,) in struct.iter_unpack(kind, indexes)]
            return [known[each - 1] for each in chosen if 0 < each <= len(known)]
    return []


def _content(data: bytes, name: bytes) -> bytes:
    return next(content for found, content in boxes(data) if found == name)


def boxes(data: bytes) -> Iterator[Property]:
    """Yield the name and the content of each box, up to a damaged box."""
    at = 0
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,), start = struct.unpack_from(">Q", data, start), at + 16
        end = at + size if size else len(data)
        if end < start:
            return
        yield name, data[start:end]
        at = end
