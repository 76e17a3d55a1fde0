"""AVIF: boxes, and the items, properties and samples that they announce."""

import struct

from models.codec.bounds.refusal import too_large, too_many

MAX_BOXES = 1000
"""Boxes of the file, and of each box that is examined, at most."""

MAX_ITEMS = 4096
"""Items of a file, at most: a grid of tiles has one each, and libavif searches all for each."""

MAX_SAMPLES = 1_000_000
"""Samples of an image sequence, at most; its tables are made before the first frame."""

_PER_PIXEL = 60e-9
_LOOKED_INTO = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"})
_HEAD = struct.Struct(">I4s")


def check_avif(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for more boxes, items or samples than files have."""
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
            if name == b"meta":
                waiting.append((start + 4, stop))
            elif name in _LOOKED_INTO:
                waiting.append((start, stop))
            else:
                _check_box(data, name, start, stop, max_pixels)
            at = max(stop, at + 8)
    return _PER_PIXEL


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
