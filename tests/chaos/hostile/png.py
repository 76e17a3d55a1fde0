"""PNGs of many chunks, of much metadata, and of pixels that are not there."""

import struct
import zlib

import numpy as np

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


def empty_chunks(size: int = 32_000_000, side: int = 64) -> bytes:
    """Return an image with empty IDAT chunks before those with the pixels."""
    empty = chunk(b"IDAT")
    rest = chunk(b"IDAT", _pixels(side, side)) + chunk(b"IEND")
    return _header(side, side) + empty * (size // len(empty)) + rest


def one_byte_chunks(side: int = 6000) -> bytes:
    """Return an image whose pixels are in IDAT chunks of one byte each."""
    data = _pixels(side, side)
    pieces = b"".join(chunk(b"IDAT", bytes([each])) for each in data)
    return _header(side, side) + pieces + chunk(b"IEND")


def text_bomb(count: int = 400, size: int = 1_000_000) -> bytes:
    """Return an image with compressed text that is large when it is decompressed."""
    body = b"a\0\0" + zlib.compress(bytes(size), 9)
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + chunk(b"zTXt", body) * count + rest


def long_text(size: int = 31_000_000) -> bytes:
    """Return an image with one text, which is not compressed and which readers copy in parts."""
    return many_chunks(1, b"iTXt", b"a" + bytes(5) + b"b" * size)


def dear_texts(count: int = 60, size: int = 30_000_000) -> bytes:
    """Return an image with compressed texts of a million characters, one of which makes all of its
    text take four bytes a character in Python, and with a chunk of `size` bytes.
    """
    packed = zlib.compress("\U0001f600".encode() + b"a" * 999_996, 9)
    texts = (chunk(b"iTXt", b"k%d\0\1\0\0\0" % n + packed) for n in range(count))
    rest = chunk(b"IDAT", _pixels(64, 64)) + chunk(b"IEND")
    return _header(64, 64) + b"".join(texts) + chunk(b"juNk", bytes(size)) + rest


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


def many_frames(count: int = 300_000) -> bytes:
    """Return an animation that announces, and has, very many frames."""
    control = chunk(b"acTL", struct.pack(">II", count, 0))
    frame = struct.pack(">IIIIIHHBB", 0, 64, 64, 0, 0, 1, 30, 0, 0)
    one = chunk(b"fcTL", frame) + chunk(b"fdAT", struct.pack(">I", 1))
    rest = chunk(b"IDAT", _pixels(64, 64)) + one * count + chunk(b"IEND")
    return _header(64, 64) + control + rest


def noisy_palette(width: int, height: int) -> bytes:
    """Return noise of 256 colours with alpha: a byte for each pixel, which decodes to four."""
    random = np.random.default_rng(1)
    lines = random.integers(0, 256, (height, 1 + width), np.uint8)
    lines[:, 0] = 0  # no line is filtered
    palette = random.integers(0, 256, 3 * 256, np.uint8).tobytes()
    alpha = random.integers(0, 256, 256, np.uint8).tobytes()
    pixels = chunk(b"IDAT", zlib.compress(lines.tobytes(), 0)) + chunk(b"IEND")
    head = _header(width, height, 3) + chunk(b"PLTE", palette) + chunk(b"tRNS", alpha)
    return head + pixels


def transparent_row(width: int) -> bytes:
    """Return a row of 16-bit grey with a transparent value."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, 16, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1 + 2 * width), 1)) + chunk(b"IEND")
    return SIGNATURE + head + chunk(b"tRNS", b"\0\1") + pixels
