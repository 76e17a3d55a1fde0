"""PNGs of many chunks, of much metadata, and of pixels that are not there."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, body: bytes = b"") -> bytes:
    """Return a chunk with its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _header(width: int, height: int, colour: int = 2) -> bytes:
    return SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))


def _pixels(width: int, height: int) -> bytes:
    return zlib.compress(bytes((1 + 3 * width) * height), 9)


def many_chunks(count: int = 1_000_000, kind: bytes = b"tEXt", body: bytes = b"a\0b") -> bytes:
    """Return an image of 64 by 64 with chunks of metadata before its pixels."""
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + chunk(kind, body) * count + rest


def text_bomb(count: int = 400, size: int = 1_000_000) -> bytes:
    """Return an image with compressed text that is large when it is decompressed."""
    body = b"a\0\0" + zlib.compress(bytes(size), 9)
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + chunk(b"zTXt", body) * count + rest


def profile_bomb(size: int = 500_000_000) -> bytes:
    """Return an image with a colour profile that is large when it is decompressed."""
    packer = zlib.compressobj(9)
    piece = bytes(1 << 20)
    data = b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + chunk(b"iCCP", b"p\0\0" + data) + rest


def exif_rationals(count: int = 3_900_000) -> bytes:
    """Return an image with EXIF whose orientation is a list of rational numbers."""
    entry = struct.pack("<HHII", 0x0112, 5, count, 26)
    exif = b"II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4) + b"\1\0\0\0\1\0\0\0" * count
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + chunk(b"eXIf", exif) + rest
