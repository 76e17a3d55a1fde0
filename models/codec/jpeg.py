"""JPEG: plain baseline files for decode engines, files with all their pixels, and bounds of cost.

`inspect` checks the whole stream of a JPEG without decoding it, and any doubt gives None:
libjpeg-turbo takes the file. Bit errors inside the Huffman data cannot be seen: codes that no table
has, too many coefficients in a block, data that end before the last block or continue after it,
values out of range. An engine meets bit errors by itself. The places of restart markers are not
checked: no engine gets a file that has them.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import mul
from typing import NamedTuple

import numpy as np
import simplejpeg

from models.codec.metadata import affordable
from models.domain.errors import TooManyPixels, Undecodable
from models.domain.image import Subsampling


def too_many(found: str, allowed: str) -> Undecodable:
    """Return the error of a JPEG that has more parts than an encoder ever writes."""
    return Undecodable(f"the JPEG has {found}, and {allowed}; save it anew")


def too_large(width: int, height: int, max_pixels: int) -> TooManyPixels:
    """Return the error of an image over the limit of pixels."""
    return TooManyPixels(
        f"the image has {width} × {height} pixels, more than the {max_pixels:,} "
        "allowed here; send it smaller"
    )


MAX_SIDE = 65_500
"""libjpeg's limit; what an engine can do is for its caller to know."""

MAX_SEGMENTS = 1000
"""Segments of the headers and between scans, at most.

Cameras write 10 to 20, and a colour profile or a depth map of 32 MB comes in 500.
"""

_FIRST_SEGMENTS = 64

_MAX_HUFFMAN_BYTES = 2 * (17 + 12) + 2 * (17 + 162)
_CACHED = 256
"""Segments of tables, and headers as a whole, that are remembered: most encoders write the four
example Huffman tables of the standard, and the same quantization tables for all images of one
quality; and the same header for all images of one quality and size."""

_SHORT, _SCAN_HEADER = 1 << 12, 14
"""Bytes of the largest header that is remembered, and of its part for a scan of three planes."""

_MAX_QUANTIZATION_BYTES = 4 * 65

_SOF0, _DHT, _RST0, _EOI, _SOS, _DQT, _DRI = 0xC0, 0xC4, 0xD0, 0xD9, 0xDA, 0xDB, 0xDD
_FRAMES = frozenset(range(0xC0, 0xD0)) - {_DHT, 0xC8, 0xCC}
_ALONE = frozenset({0x01, *range(_RST0, _EOI + 1)})
"""Markers without a segment."""

_APP0, _APP1, _APP2, _APP13, _APP14, _APP15, _COM = 0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xEF, 0xFE

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">BHHB")
_FIRST_SCAN = bytes((0xFF, _SOS))
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

UNITS = {
    Subsampling.GREY: (8, 8, (1,)),
    Subsampling.S444: (8, 8, (1, 1, 1)),
    Subsampling.S422: (16, 8, (2, 1, 1)),
    Subsampling.S420: (16, 16, (4, 1, 1)),
}
"""A minimum coded unit: width and height in pixels, blocks of each component."""


class BaselineJpeg(NamedTuple):
    """A JPEG of a single plane, or of Y, Cb and Cr; width and height are as stored.

    `length` counts its bytes from SOI to EOI: no decoder reads the bytes behind them. `metadata`
    are the marker, start and end of each segment that may hold EXIF, XMP, a colour profile, an
    index of images or Photoshop's resources; the marker is 0 behind the frame, where Pillow reads
    no profile. `restarts`: its scan has restart markers; the data before a marker may be longer or
    shorter than its blocks need, and decoders differ on surplus and missing data.
    """

    width: int
    height: int
    subsampling: Subsampling
    length: int
    metadata: tuple[tuple[int, int, int], ...] = ()
    restarts: bool = False


class _Unfit(Exception):
    """A rule is broken, or a doubt is left."""


def inspect(data: bytes | memoryview) -> BaselineJpeg | None:
    """Return the properties of a JPEG that the engines accept, or None; never raise.

    Three components are YCbCr by libjpeg's own rule; if the JFIF and Adobe markers and the
    component ids do not all agree, that is a doubt.
    """
    stream = bytes(data)  # no copy of what is bytes already
    head = stream[: stream.find(_FIRST_SCAN, 0, _SHORT) + _SCAN_HEADER]
    try:
        try:
            found = _headers(head)
        except _Unfit:  # the segments go on behind it
            found = _headers.__wrapped__(stream)
    except _Unfit:
        return None
    if found is None:
        return None
    properties, start, bits = found
    length = _scan_end(stream, start, bits, restarts=properties.restarts)
    return None if length is None else properties._replace(length=length)


@lru_cache(maxsize=_CACHED)
def _headers(stream: bytes) -> tuple[BaselineJpeg, int, int] | None:
    """Return the properties but the length, and the arguments of `_scan_end`; None as `inspect`."""
    frame, interval, quantization = b"", None, 0
    shortest: dict[int, int] = {}
    """The bits of the shortest code of each Huffman table, by its class and number."""
    metadata: list[tuple[int, int, int]] = []
    other_colours = False
    for marker, start, end in _segments(stream):
        if _APP0 <= marker <= _APP15 or marker == _COM:
            # libjpeg looks at JFIF and Adobe alone, and only where they are of full length.
            if marker in (_APP1, _APP2, _APP13):
                metadata.append((0 if frame else marker, start, end))
            elif marker == _APP0 and end - start >= 14 and stream.startswith(b"JFIF\0", start):
                if stream[start + 5] != 1:  # the major version, which libjpeg warns of
                    return None
            elif marker == _APP14 and end - start >= 12 and stream.startswith(b"Adobe", start):
                other_colours |= stream[start + 11] != 1
            continue
        body = stream[start:end]
        if marker == _DQT and len(body) <= _MAX_QUANTIZATION_BYTES:
            numbers = _quantization_tables(body)
            if quantization & numbers:
                return None
            quantization |= numbers
        elif marker == _DHT and len(body) <= _MAX_HUFFMAN_BYTES:
            tables = _huffman_tables(body)
            before = len(shortest)
            shortest.update(tables)
            if len(shortest) < before + len(tables):
                return None
        elif marker == _SOF0 and not frame and len(body) >= 9:
            frame = body
        elif marker == _DRI and interval is None and len(body) == 2:
            interval = int.from_bytes(body, "big")
        elif marker == _SOS and frame:
            break
        else:  # other frames, arithmetic coding, DNL, markers that are reserved or misplaced
            return None
    else:
        return None
    precision, height, width, n = _FRAME.unpack_from(frame)
    ids, selectors = frame[6::3], body[2:-3:2]
    subsampling = _BY_FACTORS.get(frame[7::3])
    if (
        subsampling is None
        or len(frame) != 6 + 3 * n
        or precision != 8
        or not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE)
        or len(set(ids)) != n
        or any(each > 3 or not quantization >> each & 1 for each in frame[8::3])
        or (n == 3 and (other_colours or ids == b"RGB"))
        or len(body) != 4 + 2 * n
        or body[0] != n
        or body[1:-3:2] != ids
        or body[-3:] != _SEQUENTIAL
        or not all(each >> 4 in shortest and each & 15 | 0x10 in shortest for each in selectors)
    ):
        return None
    mcu_width, mcu_height, blocks = UNITS[subsampling]
    # A block takes a DC code and an AC code at least.
    least = [shortest[each >> 4] + shortest[each & 15 | 0x10] for each in selectors]
    mcus = -(-width // mcu_width) * -(-height // mcu_height)
    restarts = mcus > (interval or mcus)
    found = BaselineJpeg(width, height, subsampling, 0, tuple(metadata), restarts)
    return found, end, mcus * sum(map(mul, blocks, least))


def first_frame(start: bytes) -> tuple[int, int] | None:
    """Return the marker and the pixels of the first frame by the first bytes of a JPEG.

    None: the first segments do not show a frame. The look takes some microseconds, so that
    progressive JPEGs need no thread to be recognised.
    """
    at = 2
    try:  # every image pays for this loop, and a generator of segments would double its time
        for _ in range(_FIRST_SEGMENTS):
            prefix, marker, length = _SEGMENT.unpack_from(start, at)
            if prefix != 0xFF:
                break
            if marker in _FRAMES:
                _, height, width, _ = _FRAME.unpack_from(start, at + _SEGMENT.size)
                return marker, height * width
            at += 2 + length
    except struct.error:
        pass
    return None


def may_be_baseline(data: bytes) -> bool:
    """Return False where the first segments do not show that `inspect` may accept a JPEG."""
    frame = first_frame(data)
    return frame is not None and frame[0] == _SOF0


def _require(condition: bool) -> None:
    if not condition:
        raise _Unfit


def _segments(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker of each segment and the bounds of its body; raise for bytes in between."""
    if not stream.startswith(b"\xff\xd8"):
        raise _Unfit
    start, size, unpack = 2, len(stream), _SEGMENT.unpack_from
    for _ in range(MAX_SEGMENTS):
        body = start + 4
        if size < body:
            raise _Unfit
        prefix, marker, length = unpack(stream, start)
        start += 2 + length
        if prefix != 0xFF or length < 2 or start > size:
            raise _Unfit
        yield marker, body, start


@lru_cache(maxsize=_CACHED)
def _quantization_tables(body: bytes) -> int:
    """Return bit n for each table of number n; the upper four bits of a number mean 16 bits a
    value.
    """
    _require(len(body) % 65 == 0)
    numbers = frozenset(body[::65])
    _require(max(numbers, default=0) <= 3 and len(numbers) * 65 == len(body))
    _require(not any(0 in body[start + 1 : start + 65] for start in range(0, len(body), 65)))
    return sum([1 << each for each in numbers])


@lru_cache(maxsize=_CACHED)
def _huffman_tables(body: bytes) -> Mapping[int, int]:
    """Class and number of each table, and the bits of its shortest code.

    Baseline files need no further symbols, and each comes once: no table outgrows a table made for
    baseline.
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


# The end of entropy-coded data. The data hold no marker but restart markers: an encoder writes a 0
# behind each 0xFF of its own (ITU-T T.81, B.1.1.5). The data are searched in blocks: a hostile scan
# of 32 MB at once took 300 MB, and the GIL for 0.3 s.

_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_COEFFICIENTS = 64

_MAX_MARKERS = 1000
_MARKER = re.compile(rb"\xff[\x01-\xfe]")
"""A marker, behind any number of fill bytes 0xFF: a pattern for these too would try each of them as
its beginning, which took 2 s for 16,000 of them with a 0 behind."""

_END_OF_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker that ends the data of a scan: no restart marker, and no 0xFF of the data themselves. The
places of all markers as an array took up to 270 MB for a file of 32 MB."""

_BLOCK = 1 << 18
"""Bytes of a scan that are searched at a time: few calls of numpy, and at most 5 MB for each."""


def _scan_end(stream: bytes, start: int, bits: int, *, restarts: bool) -> int | None:
    """Return where the file ends, EOI included; None if its scan cannot be whole.

    The scan begins at `start` and has at least `bits` bits. With `restarts`, it may have restart
    markers, whose places are left to libjpeg.
    """
    if restarts:
        found = _END_OF_SCAN.search(stream, start)
        end = found.start() if found else -1
    else:
        end = _first_marker(stream, start)
    # No block takes less than its two shortest codes. A scan with fewer bits than that lacks data,
    # so it is left to libjpeg, which fills up what is missing.
    if end < 0 or stream[end + 1] != _EOI or 8 * (end - start) < bits:
        return None
    return end + 2


def whole_stream(data: bytes) -> bytes | None:
    """Return a JPEG up to the end of the last scan that its pixels need, closed by an EOI.

    Return None for a file without the scans of all coefficients: of each component, and of each
    refinement of a progressive JPEG. Whether a scan has all its data is left to the decoder. A file
    whose EOI stands there already is returned as it is.
    """
    at, progressive = 2, False
    missing: dict[int, list[int]] = {}
    """The low bits that each coefficient of a component lacks, by the component's identifier."""
    for _ in range(_MAX_MARKERS):
        found = _MARKER.search(data, at)
        if found is None or (marker := found[0][1]) == _EOI:
            return None
        at = found.end()
        if marker in _ALONE:
            continue
        length = max(2, int.from_bytes(data[at : at + 2], "big"))
        body, at = data[at + 2 : at + length], at + length
        if marker in _FRAMES and not missing:
            progressive = marker in _PROGRESSIVE
            missing = {each: [_COEFFICIENTS] * _COEFFICIENTS for each in body[6::3]}
        elif marker == _SOS and len(body) >= (n := 1 + 2 * body[0]) + 3:
            if 0xFF in body[n : n + 3]:
                return None  # the header was cut, and an EOI follows
            brought, low = range(_COEFFICIENTS), 0
            if progressive:
                brought, low = brought[body[n] : body[n + 1] + 1], body[n + 2] & 15
            for component in missing.keys() & {*body[1:n:2]}:
                for coefficient in brought:
                    missing[component][coefficient] = low
            end = _END_OF_SCAN.search(data, at)
            at = end.start() if end else len(data)
            if missing and not any(map(any, missing.values())):
                return data if end and end[0][1] == _EOI else data[:at] + b"\xff\xd9"
    return None


def _first_marker(stream: bytes, start: int) -> int:
    """Return the place of the first 0xFF from `start` on that no 0 follows, or -1.

    Every 256th byte of a scan is 0xFF with a 0 behind it, at each of which a regular expression
    stops: 50 µs for a photo of 54 kB. Whole blocks take a tenth of that. The smaller of 1 (at each
    0xFF, else 0) and the byte behind it is 1 at a marker, and 0 elsewhere.
    """
    for first in range(start, len(stream) - 1, _BLOCK):
        scan = np.frombuffer(stream, np.uint8, min(_BLOCK + 1, len(stream) - first), first)
        marks = (scan[:-1] == 0xFF).view(np.uint8)
        np.minimum(marks, scan[1:], out=marks)
        place = int(marks.argmax())
        if marks[place]:
            return first + place
    return -1


# Missing pixels. A phone may write no EOI, and a cut file may have one. libjpeg-turbo fills up
# missing data and warns, so the warning decides, of a stream that was closed behind its last scan.

_MISSING = re.compile(r"premature end of data segment|found marker 0xd\d instead of RST")
"""The warnings of libjpeg for a scan, or a part up to a restart marker, that lacks blocks."""


def closed(data: bytes) -> bytes:
    """Return a JPEG that ends with an EOI behind its last scan; raise Undecodable without one."""
    stream = whole_stream(data)
    if stream is None:
        raise _cut()
    return stream


def check_warning(warning: object) -> None:
    """Raise Undecodable if libjpeg warns, of a closed stream, of missing data."""
    if _MISSING.search(str(warning)):
        raise _cut()


def whole(data: bytes, mode: str) -> bytes:
    """Return the closed stream of a JPEG; raise Undecodable if pixels of it are missing.

    All its data are decoded, at an eighth of the size. `mode` is Pillow's.
    """
    stream = closed(data)
    # libjpeg tells its first warning alone: zeros in place of missing data hide that of their end.
    for each in (stream, stream[:-2].rstrip(b"\0") + b"\0\xff\xd9"):
        try:
            simplejpeg.decode_jpeg(each, "CMYK" if mode == "CMYK" else "GRAY", min_factor=8)
            break
        except ValueError as error:
            check_warning(error)
    return stream


def _cut() -> Undecodable:
    return Undecodable(
        "the JPEG is truncated: the data of some of its pixels are missing; send the whole file"
    )


# Bounds of cost. Pillow reads metadata in Python, on the event loop if a device decodes the file.

MAX_SCANS = 100
"""Scans of a file, at most; encoders write 1 to 15."""

MAX_SCAN_FRAMES = 16
"""Scans that an image of the largest size may have: each is a pass over all pixels, 3 ns each."""

MAX_RESOURCES = 5000
"""Resources of Photoshop in APP13, at most; it writes some 30."""

MAX_EXIF_SEGMENTS = 16
"""Segments of EXIF, at most; more than one is rare, and they are joined piece by piece."""

_PER_PIXEL, _PER_SCAN = 12e-9, 4e-9
_SEQUENTIAL_FRAMES = frozenset({0xC0, 0xC1, 0xC3, 0xC9})


def check_jpeg(data: bytes, max_pixels: int, *, one_scan: bool = False) -> float:
    """Return CPU seconds a pixel; raise for too many pixels, scans or metadata.

    `one_scan`: the caller has seen that there is a single scan; then its data are not searched.
    """
    at, pixels, planes = 2, 0, 0
    exif: list[bytes] = []
    while (found := _MARKER.search(data, at)) is not None:
        marker, start = found[0][1], found.end()
        at = start
        if marker in _ALONE:
            continue
        at = max(start + int.from_bytes(data[start : start + 2], "big"), start + 2)
        body = data[start + 2 : min(at, start + 16)]
        if marker in (0xE1, 0xE2) and body.startswith((b"Exif\0\0", b"MPF\0")):
            _check_metadata(data[start + 2 : at], exif)
        elif marker in _FRAMES and not pixels:
            pixels = _pixels(body[1:5], max_pixels)
            # libjpeg stops after the first scan of such a file if that holds all planes
            planes = body[5] if marker in _SEQUENTIAL_FRAMES and len(body) > 5 else 0
        elif marker == _SOS:
            if (resources := data.count(b"8BIM", 0, start)) > MAX_RESOURCES:
                allowed = f"at most {MAX_RESOURCES:,} are allowed"
                raise too_many(f"{resources:,} Photoshop resources", allowed)
            one_scan = one_scan or 0 < planes == int.from_bytes(body[:1], "big")
            scans = 1 if one_scan else _scans(data, start, pixels, max_pixels)
            return _PER_PIXEL + _PER_SCAN * scans
    return _PER_PIXEL


def has_several_scans(cost: float) -> bool:
    """Return whether a JPEG that takes `cost` CPU seconds a pixel has several scans."""
    return cost > _PER_PIXEL + 1.5 * _PER_SCAN


def _scans(data: bytes, start: int, pixels: int, max_pixels: int) -> int:
    """Return the number of scans up to the end of the image; the first header begins at `start`."""
    most = min(MAX_SCANS, MAX_SCAN_FRAMES * max_pixels // max(1, pixels))
    scans, at = 1, start
    while (found := _END_OF_SCAN.search(data, at)) and (marker := found[0][1]) != _EOI:
        if marker == _SOS and (scans := scans + 1) > most:
            there = data.count(found[0], start) + 1
            allowed = f"at most {most} are allowed for that size"
            raise too_many(f"{there} scans over {pixels:,} pixels", allowed)
        at = found.end()
        if marker not in _ALONE:
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return scans


def _pixels(size: bytes, max_pixels: int) -> int:
    height, width = int.from_bytes(size[:2], "big"), int.from_bytes(size[2:], "big")
    if height * width > max_pixels:
        raise too_large(width, height, max_pixels)
    return height * width


def _check_metadata(segment: bytes, exif: list[bytes]) -> None:
    """Raise Undecodable for a directory that takes long to read; `exif` collects its segments.

    Pillow joins the segments of EXIF, so the directory may stand in any of them. It reads the
    directory of an MPF, an index of further images in the file, as it does EXIF's.
    """
    if segment.startswith(b"MPF\0"):
        if not affordable(segment[4:]):
            found = "the index of images (MPF) of the JPEG has too many entries; remove it"
            raise Undecodable(found)
        return
    exif.append(segment[6:])
    if len(exif) > MAX_EXIF_SEGMENTS:
        allowed = f"at most {MAX_EXIF_SEGMENTS} are allowed"
        raise too_many(f"more than {MAX_EXIF_SEGMENTS} segments of EXIF", allowed)
    if not affordable(b"".join(exif)):
        raise Undecodable("the EXIF of the JPEG is too large or has too many entries; remove it")
