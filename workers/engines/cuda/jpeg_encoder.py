"""Encode results of filters on the device, with the bytes that libjpeg-turbo writes on the CPU.

The header of a file and its tables come from libjpeg-turbo itself: a small image is encoded once
for each quality and subsampling. The kernels are in `kernels/jpeg_encode.cu`.
"""

import functools

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from models.codec.encoder import MAX_SIDE
from models.codec.formats import ImageFormat
from models.codec.jpeg import UNITS
from models.domain.image import Jpeg, Pixels, Subsampling
from workers.kernels.items import Pass, Shape
from workers.operations import DeviceJpeg

ENCODING = (Pass("jpeg_blocks"), Pass("pack_jpeg"))
"""The passes from pixels to a file that lies on the device."""

STORING = Pass("store_jpegs")
"""The pass that copies the files to memory of the host."""

LEAST_SIDE = 16
"""Pixels of the shortest side that is encoded: blocks of a narrower image are mostly filling."""

FILE_AT = 16
"""Bytes before a file; the first four of them hold its size, or 0 if there is no file."""

TABLES = np.dtype(
    [
        ("wide", np.uint32),
        ("high", np.uint32),
        ("header", np.uint32),
        ("size", np.uint32),
        ("fast", np.uint32),
        ("unused", np.uint32),
        ("steps", np.uint16, (2, 64)),
        ("codes", np.uint32, (4, 256)),
        ("bytes", np.uint8, 1024),
    ]
)
"""The struct `JpegTables` of kernels/jpeg_encode.cu."""


_ZIGZAG = sorted(range(64), key=lambda at: (d := at // 8 + at % 8, at if d % 2 else -at))
"""The places of coefficients, row by row, in the order in which a file has them: along diagonals,
down every second one and up the others."""

EXACT = 96
"""The quality from which simplejpeg uses the exact DCT in place of the quick DCT."""

_SCALES = np.where(np.arange(8) > 0, np.sqrt(2) * np.cos(np.arange(8) * np.pi / 16), 1)
"""The scales of the results of the quick DCT in one direction."""


def fits(shape: Shape) -> bool:
    """Return whether an image of this shape is encoded: alpha and narrow images are not."""
    *sides, channels = shape
    within = min(sides) >= LEAST_SIDE and max(sides) <= MAX_SIDE[ImageFormat.JPEG]
    return within and channels in (1, 3)


def scratch(shape: Shape, asked: DeviceJpeg) -> int:
    """Return the bytes of the coefficients of an image: two for each sample of whole units."""
    height, width, channels = shape
    wide, high = _luma_blocks(asked, channels)
    units = -(-width // (8 * wide)) * -(-height // (8 * high))
    return units * (wide * high + channels - 1) * 128


def stored(asked: DeviceJpeg, channels: int) -> Subsampling:
    """Return the subsampling of the file of an image with 1 or 3 channels."""
    return Subsampling.GREY if channels == 1 else asked.subsampling


def _luma_blocks(asked: DeviceJpeg, channels: int) -> tuple[int, int]:
    """Return how many luma blocks a unit of the file has across and down."""
    width, height, _ = UNITS[stored(asked, channels)]
    return width // 8, height // 8


@functools.lru_cache(64)
def tables(asked: DeviceJpeg, channels: int) -> NDArray[np.void]:
    """Return what all files of images with 1 or 3 channels have in common: TABLES (1,)."""
    found = np.zeros(1, TABLES)
    made = found[0]
    made["wide"], made["high"] = _luma_blocks(asked, channels)
    made["fast"] = asked.quality < EXACT
    header = _header(asked, channels)
    made["header"] = len(header)
    made["bytes"][: len(header)] = np.frombuffer(header, np.uint8)
    at = 2
    while at < len(header):
        marker, length = header[at + 1], int.from_bytes(header[at + 2 : at + 4], "big")
        body = header[at + 4 : at + 2 + length]
        if marker == 0xDB:
            steps = np.frombuffer(body, np.uint8, 64, 1)
            made["steps"][body[0] & 15][_ZIGZAG] = steps * _scaled(asked.quality)[_ZIGZAG] + 0.5
        elif marker == 0xC0:
            made["size"] = at + 5
        elif marker == 0xC4:
            _read_codes(body, made["codes"][2 * (body[0] & 15) + (body[0] >> 4)])
        at += 2 + length
    return found


def file(stored_bytes: Pixels, shape: Shape, asked: DeviceJpeg) -> Jpeg | None:
    """Return a copy of the file at the beginning of memory of the host, None if there is none."""
    size = int(stored_bytes[:4].view(np.uint32)[0])
    if not size:
        return None
    data = stored_bytes[FILE_AT : FILE_AT + size].copy()
    height, width, channels = shape
    return Jpeg(data, height, width, 1, stored(asked, channels))


def _scaled(quality: int) -> NDArray[np.float64]:
    """Return the scale of each result of the DCT, float64 (64,), as libjpeg-turbo counts it."""
    if quality >= EXACT:
        return np.full(64, 8.0)
    return np.round(np.outer(_SCALES, _SCALES).ravel() * (1 << 14)) / (1 << 11)


def _header(asked: DeviceJpeg, channels: int) -> bytes:
    """Return everything before the entropy-coded data of a file."""
    space = "GRAY" if channels == 1 else "RGB"
    chroma = "Gray" if channels == 1 else asked.subsampling.replace(":", "")
    pixels = np.zeros((LEAST_SIDE, LEAST_SIDE, channels), np.uint8)
    whole = bytes(simplejpeg.encode_jpeg(pixels, asked.quality, space, chroma))
    scan = whole.index(b"\xff\xda")
    return whole[: scan + 2 + int.from_bytes(whole[scan + 2 : scan + 4], "big")]


def _read_codes(body: bytes, codes: NDArray[np.uint32]) -> None:
    """Write length << 16 | code of each symbol of a Huffman table (ITU-T T.81, annex C)."""
    code, at = 0, 17
    for length in range(1, 17):
        for symbol in body[at : at + body[length]]:
            codes[symbol] = length << 16 | code
            code += 1
        at += body[length]
        code <<= 1
