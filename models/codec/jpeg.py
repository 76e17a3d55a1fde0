"""Recognise plain baseline JPEGs, whole and well formed, as hardware engines accept them.

The whole stream is checked without decoding it, and any doubt gives None: libjpeg-turbo takes those
files. Bit errors inside the Huffman data cannot be seen: codes that no table has, too many
coefficients in a block, data that end before the last block or continue after it, values out of
range. An engine meets those by itself; with restart markers each interval may be wrong that way.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import mul

from models.codec.jpeg_scan import scan_end
from models.domain.image import Subsampling

MAX_SIDE = 65_500
"""libjpeg's limit; what an engine can do is for its caller to know."""

MAX_SEGMENTS = 1000
"""Cameras write 10 to 20; bounds the time a file of nothing but empty comments can take."""

_FIRST_SEGMENTS = 64

_MAX_HUFFMAN_BYTES = 2 * (17 + 12) + 2 * (17 + 162)
_CACHED = 64
"""Segments of tables that are remembered: most encoders write the four example Huffman tables of
the standard, and the same quantization tables for all images of one quality."""

_MAX_QUANTIZATION_BYTES = 4 * 65

_SOF0, _DHT, _SOS, _DQT, _DRI = 0xC0, 0xC4, 0xDA, 0xDB, 0xDD
_FRAMES = frozenset(range(0xC0, 0xD0)) - {_DHT, 0xC8, 0xCC}
_APP0, _APP14, _APP15, _COM = 0xE0, 0xEE, 0xEF, 0xFE

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">BHHB")
_SEQUENTIAL = bytes((0, 63, 0))  # Ss, Se, Ah and Al

# Kraft's sum in 65,536ths. The code of all ones is reserved, so a table stays below the whole.
_KRAFT = tuple(1 << (16 - length) for length in range(1, 17))
_DC_SYMBOLS = bytes(range(12))
_AC_SYMBOLS = bytes((0x00, 0xF0, *(run << 4 | size for run in range(16) for size in range(1, 11))))

_BY_FACTORS = {
    b"\x11": Subsampling.GREY,
    b"\x11\x11\x11": Subsampling.S444,
    b"\x21\x11\x11": Subsampling.S422,
    b"\x22\x11\x11": Subsampling.S420,
}

_MCU = {
    Subsampling.GREY: (8, 8, (1,)),
    Subsampling.S444: (8, 8, (1, 1, 1)),
    Subsampling.S422: (16, 8, (2, 1, 1)),
    Subsampling.S420: (16, 16, (4, 1, 1)),
}
"""A minimum coded unit: width and height in pixels, blocks of each component."""


@dataclass(frozen=True, slots=True)
class BaselineJpeg:
    """A JPEG of one plane, or of Y, Cb and Cr; width and height are those stored.

    `length` counts its bytes from SOI to EOI: what a file has behind them is no decoder's business.
    `described`: it has segments that may hold EXIF or a colour profile. `restarts`: its scan has
    restart markers; what stands before each of them need not be what the blocks there need, and
    decoders differ on what is too much or too little.
    """

    width: int
    height: int
    subsampling: Subsampling
    length: int
    described: bool
    restarts: bool = False


class _Unfit(Exception):
    """A rule is broken, or a doubt is left."""


@dataclass(slots=True)
class _Header:
    """What the segments before the scan have defined; `shortest` codes are by class and number."""

    frame: bytes = b""
    interval: int | None = None
    quantization: set[int] = field(default_factory=set)
    shortest: dict[int, int] = field(default_factory=dict)
    other_colours: bool = False
    described: bool = False


def inspect(data: bytes | memoryview) -> BaselineJpeg | None:
    """Return what the engines need to know of a JPEG that they accept, or None; never raise.

    Three components are YCbCr by libjpeg's own rule; if the JFIF and Adobe markers and the
    component ids do not all agree, that is a doubt.
    """
    stream = bytes(data)  # no copy of what is bytes already
    try:
        header = _Header()
        for marker, start, end in _segments(stream):
            if marker == _SOS:
                return _image(stream, header, stream[start:end], end)
            _read(header, marker, stream, start, end)
    except _Unfit:
        pass
    return None


def may_be_baseline(data: bytes) -> bool:
    """Return False where the first segments already show that `inspect` will answer None.

    It takes some microseconds, so that progressive JPEGs need no thread to be recognised.
    """
    try:
        for marker, _, _ in islice(_segments(data), _FIRST_SEGMENTS):
            if marker in _FRAMES:
                return marker == _SOF0
    except _Unfit:
        return False
    return True


def _require(condition: bool) -> None:
    if not condition:
        raise _Unfit


def _segments(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker of each segment and the bounds of its body; raise for bytes in between."""
    if not stream.startswith(b"\xff\xd8"):
        raise _Unfit
    start, size = 2, len(stream)
    for _ in range(MAX_SEGMENTS):
        body = start + _SEGMENT.size
        if size < body:
            raise _Unfit
        prefix, marker, length = _SEGMENT.unpack_from(stream, start)
        end = start + 2 + length
        if prefix != 0xFF or length < 2 or end > size:
            raise _Unfit
        yield marker, body, end
        start = end


def _read(header: _Header, marker: int, stream: bytes, start: int, end: int) -> None:
    if _APP0 <= marker <= _APP15 or marker == _COM:
        _read_application(header, marker, stream[start : min(end, start + 14)])
        return
    body = stream[start:end]
    if marker == _DQT and len(body) <= _MAX_QUANTIZATION_BYTES:
        names = _quantization_tables(body)
        _require(header.quantization.isdisjoint(names))
        header.quantization |= names
    elif marker == _DHT and len(body) <= _MAX_HUFFMAN_BYTES:
        tables = _huffman_tables(body)
        _require(header.shortest.keys().isdisjoint(tables))
        header.shortest |= tables
    elif marker == _SOF0 and not header.frame and len(body) >= 9:
        header.frame = body
    elif marker == _DRI and header.interval is None and len(body) == 2:
        header.interval = int.from_bytes(body, "big")
    else:  # other kinds of frame, arithmetic coding, DNL, markers that are reserved or misplaced
        raise _Unfit


def _read_application(header: _Header, marker: int, head: bytes) -> None:
    """libjpeg looks at JFIF and Adobe alone, and only where they are of full length."""
    if marker == _APP0 and len(head) == 14 and head.startswith(b"JFIF\0"):
        _require(head[5] == 1)  # the major version, which libjpeg warns of
    elif marker not in (_APP0, _APP14, _COM):
        header.described = True
    elif marker == _APP14 and len(head) >= 12 and head.startswith(b"Adobe"):
        header.other_colours |= head[11] != 1


@lru_cache(maxsize=_CACHED)
def _quantization_tables(body: bytes) -> frozenset[int]:
    """Return the number of each table; the upper four bits of a larger one mean 16 bits a value."""
    _require(len(body) % 65 == 0)
    names = frozenset(body[::65])
    _require(max(names, default=0) <= 3 and len(names) * 65 == len(body))
    _require(not any(0 in body[start + 1 : start + 65] for start in range(0, len(body), 65)))
    return names


@lru_cache(maxsize=_CACHED)
def _huffman_tables(body: bytes) -> Mapping[int, int]:
    """Class and number of each table, and the bits of its shortest code.

    Symbols are those baseline needs and come once each: no table outgrows one made for baseline.
    """
    tables: dict[int, int] = {}
    start = 0
    while start < len(body):
        name, counts = body[start], body[start + 1 : start + 17]
        _require(name in (0x00, 0x01, 0x10, 0x11) and name not in tables and len(counts) == 16)
        start += 17 + sum(counts)
        symbols = body[start - sum(counts) : start]
        _require(0 < len(symbols) == sum(counts) == len(set(symbols)))
        _require(not symbols.translate(None, _AC_SYMBOLS if name & 0x10 else _DC_SYMBOLS))
        _require(sum(map(mul, counts, _KRAFT)) < 1 << 16)
        tables[name] = 16 - len(counts.lstrip(b"\0")) + 1
    return tables


def _image(stream: bytes, header: _Header, scan: bytes, start: int) -> BaselineJpeg:
    """Return the image whose only scan has this header, with its data from `start` on."""
    if not header.frame:
        raise _Unfit
    precision, height, width, n = _FRAME.unpack_from(header.frame)
    ids, factors, tables = header.frame[6::3], header.frame[7::3], header.frame[8::3]
    subsampling = _BY_FACTORS.get(factors)
    if subsampling is None or len(header.frame) != 6 + 3 * n:
        raise _Unfit
    _require(
        precision == 8
        and 1 <= width <= MAX_SIDE
        and 1 <= height <= MAX_SIDE
        and len(set(ids)) == n
        and header.quantization.issuperset(tables)
        and (n == 1 or not (header.other_colours or ids == b"RGB"))
        and len(scan) == 4 + 2 * n
        and scan[0] == n
        and scan[1:-3:2] == ids
        and scan[-3:] == _SEQUENTIAL
    )
    mcu_width, mcu_height, blocks = _MCU[subsampling]
    bits = sum(map(mul, blocks, [_least_bits(header, selector) for selector in scan[2:-3:2]]))
    mcus = -(-width // mcu_width) * -(-height // mcu_height)
    interval = header.interval or mcus
    end = scan_end(stream, start, interval, mcus, bits)
    if end is None:
        raise _Unfit
    return BaselineJpeg(width, height, subsampling, end, header.described, mcus > interval)


def _least_bits(header: _Header, selector: int) -> int:
    """Return the bits of a block coded by these two tables, at least: one DC and one AC code."""
    try:
        return header.shortest[selector >> 4] + header.shortest[selector & 15 | 0x10]
    except KeyError:
        raise _Unfit from None
