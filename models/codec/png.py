"""PNG: the memory of rows, and the chunks that Pillow does not read as the specification says.

Pillow itself bounds the inflated size of texts and profiles. Pixels stop inflating at the last row,
so a bomb behind them costs nothing; later frames of an animation are not decoded. Sections: PNG 3
(2025).
"""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL.ImageFile import ImageFile

_SIGNATURE = 8
_HEAD = struct.Struct(">I4s")
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the type of colour in IHDR
_ROWS = 2  # Pillow keeps the last row beside the present one


def png_buffers(data: bytes, pixels: int) -> int:
    """Return the bytes of the rows that Pillow keeps beside its picture of `pixels` pixels.

    They are few unless the picture is very wide: then they are larger than the picture.
    """
    if data[12:16] != b"IHDR" or len(data) < 26:
        return 8 * _ROWS * pixels
    width, depth, colour = int.from_bytes(data[16:20], "big"), data[24], data[25]
    return _ROWS * -(-width * depth * _SAMPLES.get(colour, 4) // 8)


# Ancillary chunks with a wrong checksum, or too short for their content, are left out, as browsers
# do.

_SHORTEST = {
    b"gAMA": 4,
    b"cHRM": 32,
    b"sRGB": 1,
    b"pHYs": 9,
    b"iCCP": 4,
    b"acTL": 8,
    b"fcTL": 26,
}
"""Bytes of the content, at least, of chunks that Pillow reads; a shorter chunk stops it."""

_SHORTEST_TRANSPARENCY = {b"\0": 2, b"\2": 6}  # by the type of colour in IHDR

_PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
"""The first column and row of each pass of an interlaced PNG, and the steps to the next ones."""

_PIECE = 1 << 18

Chunk = tuple[bytes, int, int]
"""The name of a chunk, and the bounds of its content."""


def chunks(data: bytes) -> Iterator[Chunk]:
    """Yield the chunks up to the end."""
    at = _SIGNATURE
    while at + _HEAD.size <= len(data):
        length, name = _HEAD.unpack_from(data, at)
        yield name, at + 8, min(at + 8 + length, len(data))
        at += length + 12
        if name == b"IEND":
            return


def without_damaged_chunks(data: bytes) -> bytes:
    """Return the file without its damaged ancillary chunks."""
    kept, at = [], 0
    shortest = _SHORTEST | {b"tRNS": _SHORTEST_TRANSPARENCY.get(data[25:26], 1)}
    for name, start, end in chunks(data):
        if name[0] & 0x20 and (
            end - start < shortest.get(name, 0)
            or zlib.crc32(data[start - 4 : end]) != int.from_bytes(data[end : end + 4], "big")
        ):
            kept.append(data[at : start - 8])
            at = end + 4
    return b"".join([*kept, data[at:]]) if at else data


def cicp(data: bytes) -> tuple[int, int] | None:
    """Return primaries and transfer of full-range RGB by the chunk cICP before the pixels."""
    for name, start, end in chunks(data):
        if name == b"IDAT":
            break
        if name == b"cICP" and end - start == 4 and data[start + 2 : end] == b"\0\1":
            return data[start], data[start + 1]
    return None


def check_rows(data: bytes, image: ImageFile) -> None:
    """Raise EOFError for a loaded PNG without the data of all rows, which Pillow leaves black.

    The data are unpacked again, and counted, only if the last row is black or the PNG interlaced.
    """
    if data[12:16] != b"IHDR":
        return
    width, height, depth, colour, *_, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    if not interlaced and np.asarray(image.crop((0, height - 1, width, height))).any():
        return
    bits = depth * _SAMPLES[colour]
    passes = _PASSES if interlaced else ((0, 0, 1, 1),)
    needed = 0
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            needed += rows * (1 + -(-columns * bits // 8))
    unpack = zlib.decompressobj()
    for name, start, end in chunks(data):
        if name == b"IDAT":
            packed, piece = data[start:end], _PIECE
            while (packed or piece == _PIECE) and needed > 0 and not unpack.eof:
                piece = len(unpack.decompress(packed, _PIECE))
                packed = unpack.unconsumed_tail
                needed -= piece
    if needed > 0:
        raise EOFError("the PNG has fewer rows than its header says")
