"""WebP: the canvas, which is allocated before anything is decoded, and the number of chunks."""

from models.codec.exif import affordable
from models.codec.refusal import too_large, too_many, too_much_exif

MAX_CHUNKS = 20_000
"""Animations have one chunk or two a frame, most files fewer than five."""

_PER_PIXEL = 25e-9


def check_webp(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for too many pixels or chunks."""
    at, end = 12, len(data) - 8
    for _ in range(MAX_CHUNKS):
        if at > end:
            return _PER_PIXEL
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        width, height = size_in_chunk(name, data[at + 8 : at + 18])
        if width * height > max_pixels:
            raise too_large(width, height, max_pixels)
        if name == b"EXIF" and not affordable(data[at + 8 : at + 8 + size]):
            raise too_much_exif("WebP")
        at += 8 + size + (size & 1)
    raise too_many(
        "WebP", f"more than {MAX_CHUNKS:,} chunks", f"at most {MAX_CHUNKS:,} are allowed"
    )


def size_in_chunk(name: bytes, head: bytes) -> tuple[int, int]:
    """Return width and height by a chunk's first ten bytes; 0 if it has none."""
    if len(head) < 10:
        return 0, 0
    if name == b"VP8X":
        return 1 + int.from_bytes(head[4:7], "little"), 1 + int.from_bytes(head[7:10], "little")
    if name == b"VP8L" and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if name == b"VP8 " and head[3:6] == b"\x9d\x01\x2a":
        width, height = head[6:8], head[8:10]
        return (
            int.from_bytes(width, "little") & 0x3FFF,
            int.from_bytes(height, "little") & 0x3FFF,
        )
    return 0, 0
