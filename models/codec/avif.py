"""AVIF: bounds of cost, and the properties that Pillow does not apply: clap and nclx.

Layout: ISO/IEC 14496-12, 8.11, and ISO/IEC 23008-12, 6.5.
"""

import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

from models.codec.refusal import too_large, too_many
from models.codec.rows import Box

MAX_BOXES = 1000
"""Boxes of the file, and of each box that is examined, at most."""

MAX_ITEMS = 4096
"""Items of a file, at most: a grid of tiles has one each, and libavif searches all for each."""

MAX_SAMPLES = 1_000_000
"""Samples of an image sequence, at most; its tables are made before the first frame."""

_PER_PIXEL = 60e-9
_SKIPPED = {
    **dict.fromkeys((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"), 0),
    **{b"meta": 4, b"stsd": 8, b"av01": 78},
}
"""The boxes that hold other boxes, with the bytes before the first of them."""

_HIGH = 0x40
"""The bit of 10 or 12 bits a sample in the third byte of av1C; behind it stand three of chroma."""

_CHROMA = (2.0, 2.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0)
"""Samples of chroma for one of luma, by three bits: grey, half the width, half the height."""

_HEAD = struct.Struct(">I4s")


def check_avif(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for more boxes, items or samples than files have."""
    for name, start, end in _leaves(data):
        _check_box(data, name, start, end, max_pixels)
    return _PER_PIXEL


def avif_buffers(data: bytes, pixels: int, *, alpha: bool) -> int:
    """Return the bytes of the planes of a picture before they are converted to RGB.

    The planes have the depth and the chroma of the finest configuration of a decoder (av1C,
    AV1-ISOBMFF 2.3) in the file, or 16 bits in full chroma where the file has no configuration.
    """
    found = [
        data[start + 2] for name, start, end in _leaves(data) if name == b"av1C" and end > start + 2
    ]
    sample = 2 if any(each & _HIGH for each in found) or not found else 1
    chroma = max((_CHROMA[each >> 2 & 7] for each in found), default=2.0)
    return int(pixels * sample * (1 + chroma + alpha))


def _leaves(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name, start and end of each box without boxes inside; raise if they are many."""
    boxes = 0
    waiting = [(0, len(data))]
    while waiting:
        at, end = waiting.pop()
        while at + 8 <= end:
            boxes += 1
            if boxes > MAX_BOXES + MAX_ITEMS:
                raise too_many("AVIF", f"more than {boxes - 1:,} boxes", "files have up to some 50")
            size, name = _HEAD.unpack_from(data, at)
            start, stop = at + 8, at + size if size > 1 else end
            if size == 1:
                start, stop = at + 16, at + int.from_bytes(data[at + 8 : at + 16], "big")
            stop = min(stop, end)
            if name in _SKIPPED:
                waiting.append((start + _SKIPPED[name], stop))
            else:
                yield name, start, stop
            at = max(stop, at + 8)


def _check_box(data: bytes, name: bytes, start: int, end: int, max_pixels: int) -> None:
    body = data[start : min(end, start + 16)]
    if len(body) < 12 and name != b"iinf":
        return
    if name == b"ispe":
        width, height = struct.unpack_from(">II", body, 4)
        if width * height > max_pixels:
            raise too_large(width, height, max_pixels)
    elif name == b"iloc":
        _check_items(int.from_bytes(body[6:8] if body[0] < 2 else body[6:10], "big"))
    elif name == b"iinf":
        _check_items(int.from_bytes(body[4:6] if body[:1] == b"\0" else body[4:8], "big"))
    elif name == b"ipma":
        _check_items(int.from_bytes(body[4:8], "big"))
    elif name in (b"stts", b"stsc", b"stco", b"co64", b"stss", b"stsz"):
        at = 8 if name == b"stsz" else 4
        samples = int.from_bytes(body[at : at + 4], "big")
        if samples > MAX_SAMPLES:
            allowed = f"at most {MAX_SAMPLES:,} are allowed"
            raise too_many("AVIF", f"{samples:,} samples in a sequence", allowed)


def _check_items(n: int) -> None:
    if n > MAX_ITEMS:
        raise too_many("AVIF", f"{n:,} items", f"at most {MAX_ITEMS:,} are allowed")


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
    for _ in range(MAX_BOXES):
        if at + 8 > len(data):
            return
        size, name = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,), start = struct.unpack_from(">Q", data, start), at + 16
        end = at + size if size else len(data)
        if end < start:
            return
        yield name, data[start:end]
        at = end
