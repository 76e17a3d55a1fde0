"""WebP: the canvas, which libwebp allocates when a file is opened, and the first frame.

Layout: RFC 9649, sections 2.7.1.1 and 2.7.1.2.
"""

from models.codec.rows import Box

_VP8X = 30
"""Bytes up to the end of the first chunk of an animation."""


def canvas(data: bytes) -> tuple[int, int]:
    """Return width and height by the first chunk of a file; 0 if it has none."""
    return size_in_chunk(data[12:16], data[20:30])


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


def first_frame(data: bytes) -> Box | None:
    """Return the first frame of an animation that is smaller than the canvas, else None."""
    at = data.find(b"ANMF", _VP8X)
    if data[12:16] != b"VP8X" or not data[20] & 2 or at < 0:
        return None
    numbers = [int.from_bytes(data[n : n + 3], "little") for n in range(at + 8, at + 20, 3)]
    left, top = 2 * numbers[0], 2 * numbers[1]
    frame = Box(left, top, left + numbers[2] + 1, top + numbers[3] + 1)
    return None if frame == (0, 0, *canvas(data)) else frame
