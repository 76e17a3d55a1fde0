"""WebP: the canvas, which libwebp allocates when a file is opened."""


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
