"""ZIPs and TARs that lie: false sizes, bombs, floods of headers."""

import bz2
import gzip
import lzma
import struct
from collections.abc import Iterable

_LIMIT = 0xFFFFFFFF


def _zip(sizes: int, at: int, extra: bytes, end: bytes | None = None) -> bytes:
    """Return a ZIP of `a.jpg` with these sizes, place of its header, and extra field, true or not.

    `end` replaces its last record.
    """
    name, packed = b"a.jpg", b"abc"
    numbers = (0, 0, 0, 0, 0, sizes, sizes, len(name))
    body = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, *numbers, 0) + name + packed
    directory = struct.pack(
        "<4s6H3L5H2L", b"PK\x01\x02", 20 | 3 << 8, 20, *numbers, len(extra), 0, 0, 0, 0, at
    )
    directory += name + extra
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), len(body), 0)
    return body + directory + (last if end is None else end)


def wide(field: bytes) -> bytes:
    """Return a ZIP with a ZIP64 field of these bytes, where all sizes should stand."""
    return _zip(_LIMIT, _LIMIT, struct.pack("<2H", 1, len(field)) + field)


def wide_end(count: int, size: int, offset: int, locator: int = 0) -> bytes:
    """Return a ZIP whose ZIP64 record has these numbers."""
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    found = struct.pack("<4sLQL", b"PK\x06\x07", 0, locator, 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, _LIMIT, _LIMIT, 0)
    return _zip(3, 0, b"", record + found + last)


def tar_header(name: bytes, size: int | bytes, kind: bytes = b"0", link: bytes = b"") -> bytes:
    """Return a TAR header; `size` may be the 12 bytes of its field."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    block = bytearray(512)
    block[:100] = name[:100].ljust(100, b"\0")
    block[100:124] = b"0000644\0" + b"0000000\0" * 2
    block[124:136] = field
    block[136:148] = b"00000000000\0"
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157:257] = link[:100].ljust(100, b"\0")
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    """Return data up to the next whole block."""
    return data + bytes(-len(data) % 512)


def pax(*pairs: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    """Return an extended header with these pairs."""
    records = b""
    for key, value in pairs:
        rest = b" %b=%b\n" % (key, value)
        size = len(rest) + len(b"%d" % (len(rest) + 6))
        records += b"%d%b" % (len(rest) + len(b"%d" % size), rest)
    return tar_header(b"pax", len(records), kind) + padded(records)


def tar_of(members: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a proper TAR."""
    written = b"".join(tar_header(name, len(data)) + padded(data) for name, data in members)
    return written + bytes(1024)


def bomb(kind: str, n_bytes: int, before: bytes = b"", filler: int = 0) -> bytes:
    """Return `before` and a TAR member of zeros that is no image, packed; then `filler` bytes.

    The member is a hidden file, so a reader passes over its content to find the next header.
    Packed streams may follow each other, so one of 45 MB is packed once and repeated.
    """
    block = 45 << 20
    n_blocks = n_bytes // block
    first = packed_tar(kind, before + tar_header(b".hidden", n_blocks * block))
    return first + packed_tar(kind, bytes(block)) * n_blocks + bytes(filler)


def packed_tar(kind: str, data: bytes) -> bytes:
    """Return bytes that are packed as gz, bz2 or xz."""
    if kind == "gz":
        return gzip.compress(data)
    return bz2.compress(data) if kind == "bz2" else lzma.compress(data)
