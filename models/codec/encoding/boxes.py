"""Read and write boxes of the ISO base media file format (ISO/IEC 14496-12, 4.2)."""

from collections.abc import Iterator

_HEADER = 8


def number(value: int, n_bytes: int) -> bytes:
    """Return a number without sign in `n_bytes` bytes; raises OverflowError."""
    return value.to_bytes(n_bytes, "big")


def box(kind: bytes, content: bytes) -> bytes:
    """Return a box: its length, its kind of four bytes, and its content."""
    return number(_HEADER + len(content), 4) + kind + content


def full_box(kind: bytes, content: bytes, version: int = 0, flags: int = 0) -> bytes:
    """Return a box whose content begins with a version and flags."""
    return box(kind, number(version, 1) + number(flags, 3) + content)


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and bytes, header included, of each box of a file that was written here."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + _HEADER], data[at : at + size]
        at += size
