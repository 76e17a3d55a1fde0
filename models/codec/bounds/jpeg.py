"""JPEG: scans, segments, and bytes between segments."""

import re

from models.codec.bounds.exif import affordable
from models.codec.bounds.refusal import too_large, too_many, too_much_exif
from models.domain.errors import Undecodable

MAX_SEGMENTS = 1000
"""Segments of the headers and between scans, at most.

Cameras write 10 to 20, and a colour profile or a depth map of 32 MB comes in 500.
"""

MAX_FILL = 4096
"""Bytes between segments that belong to none, at most; parsers read them one by one."""

MAX_SCANS = 100
"""Scans of a file, at most; encoders write 1 to 15."""

MAX_SCAN_FRAMES = 16
"""Scans that an image of the largest size may have: each is a pass over all pixels, 3 ns each."""

MAX_RESOURCES = 5000
"""Resources of Photoshop in APP13, at most; it writes some 30."""

MAX_EXIF_SEGMENTS = 16
"""Segments of EXIF, at most; more than one is rare, and they are joined piece by piece."""

_PER_PIXEL, _PER_SCAN = 12e-9, 4e-9

_NEXT = re.compile(rb"\xff[\x01-\xfe]")
"""A marker, behind any number of fill bytes 0xFF: a pattern for these too would try each of them as
its beginning, which took 2 s for 16,000 of them with a 0 behind."""

_NEXT_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker that ends the data of a scan: no restart marker, and no 0xFF of the data themselves. The
places of all markers as an array took up to 270 MB for a file of 32 MB."""

_EOI, _SOS = 0xD9, 0xDA
_ALONE = frozenset({0x01, *range(0xD0, 0xDA)})
"""Markers without a segment."""

_SEQUENTIAL = frozenset({0xC0, 0xC1, 0xC3, 0xC9})
_SOF = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


def check_jpeg(data: bytes, max_pixels: int, *, one_scan: bool = False) -> float:
    """Return CPU seconds a pixel; raise Undecodable for a file that costs more than its pixels do.

    `one_scan`: the caller has seen that there is only one; then its data are not searched.
    """
    at, fill, segments, pixels, planes = 2, 0, 0, 0, 0
    exif: list[bytes] = []
    while (found := _NEXT.search(data, at)) is not None:
        marker, start = found[0][1], found.end()
        fill += start - 2 - at
        _check_fill(fill)
        if (segments := segments + 1) > MAX_SEGMENTS:
            raise _too_many_segments()
        if marker in _ALONE:
            at = start
            continue
        end = start + int.from_bytes(data[start : start + 2], "big")
        if marker in (0xE1, 0xE2) and data.startswith((b"Exif\0\0", b"MPF\0"), start + 2):
            _check_metadata(data[start + 2 : end], exif)
        elif marker in _SOF and not pixels:
            pixels = _pixels(data[start + 3 : start + 7], max_pixels)
            # libjpeg stops after the first scan of such a file if that holds all planes
            planes = data[start + 7] if marker in _SEQUENTIAL and start + 7 < len(data) else 0
        elif marker == _SOS:
            _check_resources(data, start)
            one_scan = one_scan or 0 < planes == int.from_bytes(data[start + 2 : start + 3], "big")
            scans = 1 if one_scan else _scans(data, start, pixels, max_pixels)
            return _PER_PIXEL + _PER_SCAN * scans
        at = max(end, start + 2)
    _check_fill(fill + len(data) - at)
    return _PER_PIXEL


def has_several_scans(cost: float) -> bool:
    """Return whether a JPEG that takes `cost` CPU seconds a pixel has more scans than one."""
    return cost > _PER_PIXEL + 1.5 * _PER_SCAN


def _scans(data: bytes, start: int, pixels: int, max_pixels: int) -> int:
    """Return the number of scans up to the end of the image; the first header begins at `start`."""
    most = min(MAX_SCANS, MAX_SCAN_FRAMES * max_pixels // max(1, pixels))
    scans, at = 1, start
    for _ in range(MAX_SEGMENTS):
        found = _NEXT_IN_SCAN.search(data, at)
        if found is None or (marker := found[0][1]) == _EOI:
            return scans
        if marker == _SOS and (scans := scans + 1) > most:
            there = data.count(found[0], start) + 1
            allowed = f"at most {most} are allowed for that size"
            raise too_many("JPEG", f"{there} scans over {pixels:,} pixels", allowed)
        at = found.end()
        if marker not in _ALONE:
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    raise _too_many_segments()


def _check_fill(fill: int) -> None:
    if fill > MAX_FILL:
        allowed = f"at most {MAX_FILL:,} are allowed"
        raise too_many("JPEG", f"{fill:,} bytes or more between its segments", allowed)


def _too_many_segments() -> Undecodable:
    allowed = f"at most {MAX_SEGMENTS:,} are allowed"
    return too_many("JPEG", f"more than {MAX_SEGMENTS:,} segments", allowed)


def _pixels(size: bytes, max_pixels: int) -> int:
    height, width = int.from_bytes(size[:2], "big"), int.from_bytes(size[2:], "big")
    if height * width > max_pixels:
        raise too_large(width, height, max_pixels)
    return height * width


def _check_metadata(segment: bytes, exif: list[bytes]) -> None:
    """Raise Undecodable for a directory that takes long to read; `exif` collects its segments.

    Pillow joins those of EXIF, so the directory may stand in any of them. It reads that of an MPF,
    an index of further images in the file, as it does EXIF's.
    """
    if segment.startswith(b"Exif\0\0"):
        exif.append(segment[6:])
        if len(exif) > MAX_EXIF_SEGMENTS:
            allowed = f"at most {MAX_EXIF_SEGMENTS} are allowed"
            raise too_many("JPEG", f"more than {MAX_EXIF_SEGMENTS} segments of EXIF", allowed)
        if not affordable(b"".join(exif)):
            raise too_much_exif("JPEG")
    elif segment.startswith(b"MPF\0") and not affordable(segment[4:]):
        raise Undecodable("the index of images (MPF) of the JPEG has too many entries; remove it")


def _check_resources(data: bytes, end: int) -> None:
    found = data.count(b"8BIM", 0, end)
    if found > MAX_RESOURCES:
        allowed = f"at most {MAX_RESOURCES:,} are allowed"
        raise too_many("JPEG", f"{found:,} Photoshop resources", allowed)
