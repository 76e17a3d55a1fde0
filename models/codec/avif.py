"""AVIF: the memory of planes, and the properties that Pillow does not apply: clap and nclx.

Layout: ISO/IEC 14496-12, 8.11, and ISO/IEC 23008-12, 6.5.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.codec.rows import Box

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
    """Return the part of the stored picture that is shown, None for the whole and for a part that
    is not inside.
    """
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
    known = list(_boxes(_content(everything, b"ipco")))
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
    return next(content for found, content in _boxes(data) if found == name)


def _boxes(data: bytes) -> Iterator[Property]:
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
