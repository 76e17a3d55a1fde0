"""TIFF: entries of the directory, strips, tiles, and the scans of JPEGs inside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.codec.bounds.exif import MAX_ENTRIES, MAX_NUMBERS, first_directory, most_numbers
from models.codec.bounds.refusal import too_many
from models.domain.errors import Undecodable

MAX_CHUNKS = 1 << 16
"""Strips or tiles, at most: each costs the decoder some 20 µs, and one a row is the finest use."""

MAX_TILE = 1 << 22
"""Pixels of a tile or strip that is larger than its image: tiles are 256 or 512 on a side."""

MAX_SAMPLES = 32
"""Samples of a pixel, at most; images have up to 5."""

MAX_SCAN_FRAMES = 16
"""The same limit as for JPEGs (`bounds/jpeg.py`)."""

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _STRIPS, _SAMPLES = 256, 257, 258, 259, 273, 277
_ROWS, _TILE_WIDTH, _TILE_HEIGHT, _TILES = 278, 322, 323, 324
_OFFSETS = (_STRIPS, _TILES)
_JPEGS = (6, 7)
_INTEGERS = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 13: 4, 16: 8, 17: 8}
"""Bytes of an integer of each kind."""

_MOST_BITS = 64
_RGBA = 4  # bytes of a pixel of a JPEG's strip, which libtiff converts
_PER_PIXEL = 20e-9


def check_tiff(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for files that cost more than the image's pixels."""
    entries = first_directory(data)
    if entries is None:
        return _PER_PIXEL
    if len(entries) > MAX_ENTRIES:
        allowed = f"at most {MAX_ENTRIES:,} are allowed"
        raise too_many("TIFF", f"more than {MAX_ENTRIES:,} entries in its directory", allowed)
    found = _found(data, entries)
    numbers = {int(each["tag"]): int(each["number"]) for each in entries[::-1]}
    chunks = max(numbers.get(_STRIPS, 0), numbers.get(_TILES, 0))
    if chunks > MAX_CHUNKS:
        kind = "tiles" if numbers.get(_TILES, 0) == chunks else "strips"
        raise too_many("TIFF", f"{chunks:,} {kind}", f"at most {MAX_CHUNKS:,} are allowed")
    if (values := most_numbers(entries)) > MAX_NUMBERS:
        raise too_many(
            "TIFF", f"{values:,} values of one tag", f"at most {MAX_NUMBERS:,} are allowed"
        )
    if (samples := found.get(_SAMPLES, 1)) > MAX_SAMPLES:
        raise Undecodable(
            f"the TIFF has {samples} samples a pixel, and at most {MAX_SAMPLES} are allowed"
        )
    _check_tiles(found)
    return _PER_PIXEL + _check_scans(data, found, max(1, chunks), max_pixels)


def tiff_buffers(data: bytes, pixels: int) -> int:
    """Return the bytes of a strip or tile, which libtiff unpacks as a whole beside the picture.

    `pixels` is the size of the image, for files without a readable directory. A JPEG of several
    scans inside keeps its coefficients too, 16 bits for each sample.
    """
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return pixels * _MOST_BITS // 8
    found = _found(data, entries)
    width, height = found.get(_WIDTH, 0), found.get(_HEIGHT, 0)
    tile = found.get(_TILE_WIDTH, 0) * found.get(_TILE_HEIGHT, 0)
    samples = min(found.get(_SAMPLES, 1), MAX_SAMPLES)
    per_pixel = -(-samples * found[_BITS] // 8)
    if found.get(_COMPRESSION) in _JPEGS:
        chunks = max([1, *(int(each["number"]) for each in entries if each["tag"] in _OFFSETS)])
        coefficients = 2 * samples if data.count(b"\xff\xda") > chunks else 0
        per_pixel = max(per_pixel, _RGBA) + coefficients
    return per_pixel * max(tile, width * min(found.get(_ROWS) or height, height))


def tag_values(data: bytes, entries: NDArray[Any]) -> dict[int, tuple[int, ...]]:
    """Return the integers of each entry that has some, by its tag; at most MAX_SAMPLES of each.

    Of equal tags the first counts, as in libtiff.
    """
    order = entries.dtype["value"].str[0]
    whole = entries.dtype["value"].itemsize
    found: dict[int, tuple[int, ...]] = {}
    for tag, kind, number, value in entries[::-1]:
        size = _INTEGERS.get(int(kind), 0)
        length = size * min(int(number), MAX_SAMPLES)
        content = int(value).to_bytes(whole, "big" if order == ">" else "little")
        if length > len(content):
            content = data[int(value) : int(value) + length]
        if size and 0 < length <= len(content):
            numbers = np.frombuffer(content[:length], f"{order}u{size}")
            found[int(tag)] = tuple(map(int, numbers))
    return found


def _found(data: bytes, entries: NDArray[Any]) -> dict[int, int]:
    """Return the numbers of entries that have one, and the largest depth of a sample."""
    values = tag_values(data, entries)
    found = {tag: numbers[0] for tag, numbers in values.items() if len(numbers) == 1}
    told = values.get(_BITS, (_MOST_BITS if (entries["tag"] == _BITS).any() else 1,))
    return found | {_BITS: min(max(told), _MOST_BITS)}


def _check_tiles(found: dict[int, int]) -> None:
    pixels = found.get(_WIDTH, 0) * found.get(_HEIGHT, 0)
    width, height = found.get(_TILE_WIDTH, 0), found.get(_TILE_HEIGHT, 0)
    most = max(MAX_TILE, 4 * pixels)
    if width * height > most:
        raise too_many(
            "TIFF",
            f"tiles of {width} × {height} pixels in an image of {pixels:,}",
            f"a tile may have at most {most:,}",
        )


def _check_scans(data: bytes, found: dict[int, int], chunks: int, max_pixels: int) -> float:
    """Return CPU seconds a pixel for the scans of JPEGs inside."""
    if found.get(_COMPRESSION) not in _JPEGS:
        return 0.0
    pixels = max(1, found.get(_WIDTH, 0) * found.get(_HEIGHT, 0))
    tile = found.get(_TILE_WIDTH, 0) * found.get(_TILE_HEIGHT, 0) or -(-pixels // chunks)
    scans = data.count(b"\xff\xda")
    most = max(4 * chunks, MAX_SCAN_FRAMES * max_pixels // max(1, tile))
    if scans > most:
        allowed = f"at most {most:,} are allowed for its size"
        raise too_many("TIFF", f"{scans:,} scans in its JPEGs", allowed)
    return 4e-9 * scans / chunks
