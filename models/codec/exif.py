"""EXIF: the entries of a directory as a table, the cost of reading a block, and the part that is
kept.

Layout: TIFF 6.0, section 2, where BigTIFF has 8 bytes in place of 2 or 4; Exif 2.32 (CIPA DC-008).
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

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


# What is kept of a block when the pixels are written anew, byte for byte: author, date, place and
# camera. Entries about the old file are left out: thumbnail, notes of the maker (their offsets
# break), sizes, colour space, and the orientation, because pixels are upright.

MAX_BLOCK = 65_533
"""Bytes of a block, at most: the content of one segment of a JPEG."""

PREFIX = b"Exif\0\0"

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
"""Bytes of a value of each type."""

_ASCII, _SHORT, _LONG = 2, 3, 4

_DESCRIPTION, _MAKE, _MODEL = 0x010E, 0x010F, 0x0110
_X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT = 0x011A, 0x011B, 0x0128
_SOFTWARE, _DATE_TIME, _ARTIST, _COPYRIGHT = 0x0131, 0x0132, 0x013B, 0x8298
_KEPT = {
    *(_DESCRIPTION, _MAKE, _MODEL, _X_RESOLUTION, _Y_RESOLUTION, _RESOLUTION_UNIT),
    *(_SOFTWARE, _DATE_TIME, _ARTIST, _COPYRIGHT),
}

_PHOTO, _GPS = 0x8769, 0x8825
"""Tags of the first directory that point to the directories of the photo and of the place."""

_COLOUR_SPACE, _WIDTH, _HEIGHT = 0xA001, 0xA002, 0xA003
_MAKER_NOTE, _INTEROPERABILITY = 0x927C, 0xA005
_DROPPED = {_COLOUR_SPACE, _WIDTH, _HEIGHT, _MAKER_NOTE, _INTEROPERABILITY}

_SRGB = 1


class _Field(NamedTuple):
    """An entry of a directory, its values in the byte order of the block."""

    tag: int
    kind: int
    number: int
    values: bytes


def kept(block: bytes, width: int, height: int, notice: str | None = None) -> bytes | None:
    r"""Return an EXIF block, `Exif\0\0` included, for an upright sRGB image of this size in pixels.

    The copyright `notice` is added to a block that has none.
    Return None if `block` is no EXIF, is larger than MAX_BLOCK, or contains nothing that is kept;
    broken entries are left out.
    """
    tiff = block.removeprefix(PREFIX)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8 or len(block) > MAX_BLOCK:
        return None
    (start,) = struct.unpack_from(order + "I", tiff, 4)
    first = {field.tag: field for field in _fields(tiff, order, start)}
    if notice and not (_COPYRIGHT in first and first[_COPYRIGHT].values.strip(b"\0 ")):
        text = notice.encode(errors="replace") + b"\0"
        first[_COPYRIGHT] = _Field(_COPYRIGHT, _ASCII, len(text), text)
    fields = [field for tag, field in first.items() if tag in _KEPT]
    photo = [each for each in _below(tiff, order, first, _PHOTO) if each.tag not in _DROPPED]
    if photo:
        photo.append(_Field(_COLOUR_SPACE, _SHORT, 1, struct.pack(order + "H", _SRGB)))
        photo.append(_Field(_WIDTH, _LONG, 1, struct.pack(order + "I", width)))
        photo.append(_Field(_HEIGHT, _LONG, 1, struct.pack(order + "I", height)))
    others = {_PHOTO: photo, _GPS: [*_below(tiff, order, first, _GPS)]}
    if not (fields or any(others.values())):
        return None
    made = PREFIX + tiff[:4] + struct.pack(order + "I", 8) + _directories(order, fields, others)
    return made if len(made) <= MAX_BLOCK else None


def _fields(tiff: bytes, order: str, start: int) -> Iterator[_Field]:
    """Yield the sound entries of the directory at `start`; together no larger than a block."""
    if start + 2 > len(tiff):
        return
    room = MAX_BLOCK
    (n,) = struct.unpack_from(order + "H", tiff, start)
    for at in range(start + 2, min(start + 2 + 12 * n, len(tiff) - 11), 12):
        tag, kind, number = struct.unpack_from(order + "HHI", tiff, at)
        size = _SIZES.get(kind, 0) * number
        where = at + 8 if size <= 4 else struct.unpack_from(order + "I", tiff, at + 8)[0]
        if 0 < size <= min(len(tiff) - where, room):
            room -= size
            yield _Field(tag, kind, number, tiff[where : where + size])


def _below(tiff: bytes, order: str, first: dict[int, _Field], tag: int) -> Iterator[_Field]:
    """Yield the entries of the directory to which the first directory points with `tag`."""
    pointer = first.get(tag)
    if pointer is not None and (pointer.kind, pointer.number) == (_LONG, 1):
        yield from _fields(tiff, order, struct.unpack(order + "I", pointer.values)[0])


def _directories(order: str, fields: list[_Field], others: dict[int, list[_Field]]) -> bytes:
    """Return the first directory, 8 bytes after the start of the block, and the directories to
    which it points.
    """

    def pointers(at: int) -> Iterator[_Field]:
        for tag, entries in others.items():
            if entries:
                yield _Field(tag, _LONG, 1, struct.pack(order + "I", at))
                at += len(_directory(order, entries, at))

    length = len(_directory(order, [*fields, *pointers(0)], 8))
    made = _directory(order, [*fields, *pointers(8 + length)], 8)
    for entries in others.values():
        made += _directory(order, entries, 8 + len(made)) if entries else b""
    return made


def _directory(order: str, fields: list[_Field], start: int) -> bytes:
    """Return a directory that starts at `start`, with its long values after it and no next
    directory.
    """
    entries, values = b"", b""
    behind = start + 2 + 12 * len(fields) + 4
    for field in sorted(fields):
        head = struct.pack(order + "HHI", *field[:3])
        if len(field.values) <= 4:
            entries += head + field.values.ljust(4, b"\0")
        else:
            entries += head + struct.pack(order + "I", behind + len(values))
            values += field.values + b"\0" * (len(field.values) % 2)
    return struct.pack(order + "H", len(fields)) + entries + bytes(4) + values
