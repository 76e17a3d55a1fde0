"""TIFFs whose tiles, strips and tags are larger than their pictures."""

import struct
import zlib
from collections.abc import Sequence
from operator import itemgetter

_SHORT, _LONG = 3, 4
_FORMATS = {_SHORT: "H", _LONG: "I"}

Entry = tuple[int, int, list[int]]


def _file(entries: list[Entry], data: bytes) -> bytes:
    """Return header, data and directory; the data begin at byte 8."""
    directory_at = 8 + len(data) + (len(data) & 1)
    values_at = directory_at + 2 + 12 * len(entries) + 4
    directory, values = b"", b""
    for tag, kind, numbers in sorted(entries, key=itemgetter(0)):
        packed = struct.pack(f"<{len(numbers)}{_FORMATS[kind]}", *numbers)
        if len(packed) <= 4:
            held = packed.ljust(4, b"\0")
        else:
            held = struct.pack("<I", values_at + len(values))
            values += packed
        directory += struct.pack("<HHI", tag, kind, len(numbers)) + held
    head = b"II*\0" + struct.pack("<I", directory_at)
    body = data + bytes(len(data) & 1)
    count = struct.pack("<H", len(entries))
    return head + body + count + directory + bytes(4) + values


def _base(width: int, height: int, samples: int, compression: int, bits: int = 8) -> list[Entry]:
    return [
        (256, _LONG, [width]),
        (257, _LONG, [height]),
        (258, _SHORT, [bits] * samples),
        (259, _SHORT, [compression]),
        (262, _SHORT, [2 if samples >= 3 else 1]),
        (277, _SHORT, [samples]),
    ]


def _zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    piece = bytes(1 << 20)
    parts = [packer.compress(piece) for _ in range(size >> 20)]
    parts.append(packer.compress(bytes(size & ((1 << 20) - 1))))
    return b"".join(parts) + packer.flush()


def large_tile(
    side: int, tile: int, samples: int = 3, bits: int = 8, beside: Sequence[Entry] = ()
) -> bytes:
    """Return a picture of `side` by `side` in one tile; `beside` are further entries."""
    data = _zeros(tile * tile * samples * bits // 8)
    tiles: list[Entry] = [
        (322, _LONG, [tile]),
        (323, _LONG, [tile]),
        (324, _LONG, [8]),
        (325, _LONG, [len(data)]),
        *([(338, _SHORT, [2])] if samples == 4 else []),
        *beside,
    ]
    return _file([*_base(side, side, samples, 8, bits), *tiles], data)


def huge_strip(rows: int = 100_000_000) -> bytes:
    """Return a picture of 64 by 64 in one strip that announces very many rows and is large."""
    data = _zeros(1_000_000_000)
    strips: list[Entry] = [
        (273, _LONG, [8]),
        (278, _LONG, [rows]),
        (279, _LONG, [len(data)]),
    ]
    return _file(_base(64, 64, 3, 8) + strips, data)
