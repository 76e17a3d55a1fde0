"""Directories of TIFF files and EXIF blocks: their entries as a table, without a loop.

Layout: TIFF 6.0, section 2; BigTIFF has 8 bytes where TIFF has 2 or 4.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ENTRIES = 1000
"""Entries of a directory, at most; cameras write some 20 to 60, and reading one takes 4 to 13 µs,
on the event loop if a device decodes the image."""

MAX_NUMBERS = 200_000
"""Numbers of one entry, at most: readers make an object of each, 4 million rationals took 50 s.

The colours of a palette of 16 bits are 196,608.
"""

MAX_BYTES = 1 << 20
"""Bytes of an EXIF block, at most: 16 segments of a JPEG have as many, and cameras fill a part of
one. Readers make several copies of it, which took 250 MB for a text of 31 MB."""

_BYTES = (1, 2, 6, 7)
"""Kinds of values that are read as one text, however long."""

_KINDS = {
    (order, wide): np.dtype(
        [
            ("tag", f"{order}u2"),
            ("kind", f"{order}u2"),
            ("number", f"{order}u{8 if wide else 4}"),
            ("value", f"{order}u{8 if wide else 4}"),
        ]
    )
    for order in "<>"
    for wide in (False, True)
}


def first_directory(tiff: bytes) -> NDArray[Any] | None:
    """Return its entries, at most MAX_ENTRIES + 1, or None if there is none."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 16:
        return None
    wide = tiff[2:4] in (b"+\0", b"\0+")
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), tiff, 8 if wide else 4)
    size = 8 if wide else 2
    if not 0 < start <= len(tiff) - size:
        return None
    (n,) = struct.unpack_from(order + ("Q" if wide else "H"), tiff, start)
    kind = _KINDS[order, wide]
    there = (len(tiff) - start - size) // kind.itemsize
    return np.frombuffer(tiff, kind, min(n, there, MAX_ENTRIES + 1), start + size)


def affordable(block: bytes) -> bool:
    """Return whether an EXIF block can be read without much cost, by its first directory."""
    if len(block) > MAX_BYTES:
        return False
    entries = first_directory(block.removeprefix(b"Exif\0\0"))
    return entries is None or (len(entries) <= MAX_ENTRIES and most_numbers(entries) <= MAX_NUMBERS)


def most_numbers(entries: NDArray[Any]) -> int:
    """Return the numbers of the entry that has the most; texts are not numbers."""
    numbers = entries["number"][~np.isin(entries["kind"], _BYTES)]
    return int(numbers.max(initial=0))
