"""Read a file's metadata: orientation, copyright, and the unparsed EXIF block.

EXIF is read through Pillow; broken metadata count as absent.
"""

import html
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

# EXIF: the entries of a directory as a table, and the cost of reading a block. Layout: TIFF 6.0,
# section 2, where BigTIFF has 8 bytes in place of 2 or 4; Exif 2.32 (CIPA DC-008).

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
    if entries is None:
        return True
    numbers = entries["number"][~np.isin(entries["kind"], _BYTES)]
    return len(entries) <= MAX_ENTRIES and bool(numbers.max(initial=0) <= MAX_NUMBERS)


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
    opened = _opened(block)
    if opened is None or len(block) > MAX_BLOCK:
        return None
    tiff, order, start = opened
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
    # The first directory stands last, when the places of the directories below it are known.
    content = b""
    for tag, entries in ((_PHOTO, photo), (_GPS, [*_below(tiff, order, first, _GPS)])):
        if entries:
            place = 8 + len(content)
            fields.append(_Field(tag, _LONG, 1, struct.pack(order + "I", place)))
            content += _directory(order, entries, place)
    if not fields:
        return None
    place = 8 + len(content)
    head = PREFIX + tiff[:4] + struct.pack(order + "I", place)
    made = head + content + _directory(order, fields, place)
    return made if len(made) <= MAX_BLOCK else None


def _opened(block: bytes) -> tuple[bytes, str, int] | None:
    """Return the block without its prefix, its byte order as `struct` writes it, and the start of
    its first directory; None if it is no EXIF.
    """
    tiff = block.removeprefix(PREFIX)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return None
    return tiff, order, struct.unpack_from(order + "I", tiff, 4)[0]


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


def _directory(order: str, fields: list[_Field], start: int) -> bytes:
    """Return a directory that starts at `start`, with its long values after it, and no next."""
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


MAX_COPYRIGHT = 1000
"""Characters kept; an EXIF block in a JPEG holds 64 KiB in all."""

_XMP = frozenset({"xmp", "XML:com.adobe.xmp"})
_ORIENTATION = 0x0112


class Metadata(NamedTuple):
    """Orientation as in EXIF (1 is upright, 5 to 8 swap width and height), and the copyright.

    `exif` is the block as it is in the file, unchecked; None in formats without EXIF, and for a
    block that is too large to be kept.
    """

    orientation: int = 1
    copyright: str | None = None
    exif: bytes | None = None


def read_metadata(image: PillowImage.Image) -> Metadata:
    """Return the metadata that Pillow has read of `image` so far; decode no pixels."""
    _set_xmp_aside(image)
    block = image.info.get("exif")
    if isinstance(block, bytes) and not affordable(block):
        return Metadata(copyright=_first_notice(image))
    read = _sound(block) if isinstance(block, bytes) else None
    orientation, notice = read or _by_pillow(image)
    return Metadata(
        orientation,
        notice or _first_notice(image),
        block if isinstance(block, bytes) and len(block) <= MAX_BLOCK else None,
    )


def _by_pillow(image: PillowImage.Image) -> tuple[int, str | None]:
    """Return the orientation and the copyright of EXIF that may be unusual, broken or absent."""
    with suppress(Exception):  # the pixels are good whatever the metadata holds
        # The base class's method: that of PNG decodes the pixels to look for EXIF behind them.
        exif = PillowImage.Image.getexif(image)
        orientation, notice = exif.get(_ORIENTATION, 1), _notice(exif.get(_COPYRIGHT))
        return int(orientation) if orientation in range(1, 9) else 1, notice
    return 1, None


def _sound(block: bytes) -> tuple[int, str | None] | None:
    """Return the orientation and the copyright of EXIF; None if its first directory is unusual."""
    if (opened := _opened(block)) is None:
        return None
    tiff, order, start = opened
    n = int.from_bytes(tiff[start : start + 2], "little" if order == "<" else "big")
    fields = {each.tag: each for each in _fields(tiff, order, start)} if n <= MAX_ENTRIES else {}
    turned, owned, across = map(fields.get, (_ORIENTATION, _COPYRIGHT, _X_RESOLUTION))
    usual = not turned or turned[1:3] == (_SHORT, 1), not owned or owned.kind == _ASCII
    # Pillow refuses some JPEGs whose resolution is a text.
    if len(fields) < n or not all(usual) or (across and across.kind in _BYTES):
        return None
    orientation = struct.unpack(order + "H", turned.values)[0] if turned else 1
    notice = _notice(owned.values.removesuffix(b"\0").decode("latin-1")) if owned else None
    return orientation if 1 <= orientation <= 8 else 1, notice


def _first_notice(image: PillowImage.Image) -> str | None:
    return next(filter(None, map(_plain, notices(image))), None)


def _set_xmp_aside(image: PillowImage.Image) -> None:
    """Hide XMP from Pillow, which would turn the image by its orientation: EXIF's alone counts."""
    for key in _XMP & image.info.keys():
        image.info[XMP] = image.info.pop(key)


def copyright_exif(notice: str) -> bytes:
    r"""Return an EXIF block, `Exif\0\0` included, that contains only this copyright in UTF-8."""
    exif = PillowImage.Exif()
    exif[_COPYRIGHT] = notice[:MAX_COPYRIGHT].encode(errors="replace")
    return exif.tobytes()


def _notice(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    with suppress(UnicodeError):  # EXIF says ASCII, the world writes UTF-8, Pillow reads Latin-1
        value = value.encode("latin-1").decode()
    return _plain(value)


def _plain(notice: str) -> str | None:
    return notice.replace("\0", " ").strip()[:MAX_COPYRIGHT] or None


# The copyright of a file that has none in EXIF: IPTC-IIM 4.2, dataset 2:116; XMP part 1, dc:rights,
# read by patterns, so that nothing is expanded; or the text of a PNG.

XMP = "darkroom XMP"
"""The key under which XMP is kept in the `info` of Pillow's images."""

MAX_XMP = 1 << 20
"""Bytes of XMP that are searched, from its beginning."""

_IPTC_RESOURCE, _IPTC_OF_TIFF = 0x0404, 33723
_DATASETS = 1000
_NOTICE = b"\x1c\x02\x74"

_PREFIX = re.compile(rb"xmlns:([\w-]{1,64})\s*=\s*[\"']http://purl\.org/dc/elements/1\.1/[\"']")
_DEFAULT = rb"<(?=[^<>]*xml:lang\s*=\s*[\"']x-default[\"'])[^<>]*>([^<]+)<"
_FIRST = rb">\s*([^<\s][^<]*)<"


def notices(image: PillowImage.Image) -> Iterator[str]:
    """Yield the notices of an image, IPTC first; some may be empty."""
    found, tags = image.info.get("photoshop"), getattr(image, "tag_v2", {})
    resources = found if isinstance(found, dict) else {}
    yield _iptc(resources.get(_IPTC_RESOURCE) or tags.get(_IPTC_OF_TIFF))
    yield _rights(image.info.get(XMP))
    if image.format == "PNG":
        text = image.info.get("Copyright")
        yield text if isinstance(text, str) else ""


def _iptc(block: object) -> str:
    at = 0
    for _ in range(_DATASETS if isinstance(block, bytes) else 0):
        assert isinstance(block, bytes)
        head, size = block[at : at + 3], int.from_bytes(block[at + 3 : at + 5], "big")
        if not head.startswith(b"\x1c") or size >= 1 << 15:
            break
        at += 5 + size
        if head == _NOTICE:
            return _text(block[at - size : at])
    return ""


def _rights(xmp: object) -> str:
    """Return the default notice of dc:rights, or the first."""
    data = (xmp.encode(errors="replace") if isinstance(xmp, str) else xmp) or b""
    if not isinstance(data, bytes) or (prefix := _PREFIX.search(data[:MAX_XMP])) is None:
        return ""
    data, name = data[:MAX_XMP], re.escape(prefix[1]) + b":rights"
    if prefix[1] + b":rights" not in data:  # found in a tenth of the time that a pattern takes
        return ""
    start = re.search(rb"<" + name + rb"[\s>]", data)
    if start is not None:
        element = data[
            start.start() : max(0, data.find(b"</" + prefix[1] + b":rights", start.end()))
        ]
        found = re.search(_DEFAULT, element + b"<") or re.search(_FIRST, element + b"<")
    else:
        found = re.search(rb"\s" + name + rb"\s*=\s*[\"']([^\"'<]+)", data)
    return html.unescape(_text(found[1])) if found else ""


def _text(stored: bytes) -> str:
    """Return text in UTF-8, or in Latin-1 where it is none."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored.decode("latin-1")


# The metadata of a JPEG by its segments, without Pillow. Layout: ICC.1:2022, annex B.4 (profiles);
# Photoshop File Formats, "Image Resource Blocks".

_EXIF_SEGMENT, _XMP_SEGMENT = (0xE1, b"Exif"), (0xE1, b"http://ns.adobe.com/xap/1.0/")
_PROFILE_SEGMENT, _RESOURCES_SEGMENT = (0xE2, b"ICC_PROFILE"), (0xED, b"Photoshop 3.0")
_SEGMENTS = {_EXIF_SEGMENT, _XMP_SEGMENT, _PROFILE_SEGMENT, _RESOURCES_SEGMENT}

_RESOLUTION = 0x03ED

_ONLY_PART = b"\1\1"
"""The number of a part of a profile, and the number of all parts."""


def of_segments(
    data: bytes, segments: Iterable[tuple[int, int, int]]
) -> tuple[Metadata, bytes | None] | None:
    """Return the metadata and the colour profile of a JPEG as Pillow would find them.

    A segment is given by its marker, start and end. Return None where Pillow has to read the file:
    a segment is of another kind or comes twice, or its content is unusual.
    """
    found: dict[tuple[int, bytes], bytes] = {}
    for marker, start, end in segments:
        name, _, content = data[start:end].partition(b"\0")
        key = marker, name
        if key in found or key not in _SEGMENTS:
            return None
        found[key] = content
    exif, xmp = found.get(_EXIF_SEGMENT), found.get(_XMP_SEGMENT)
    profile, blocks = found.get(_PROFILE_SEGMENT), found.get(_RESOURCES_SEGMENT)
    block = b"Exif\0" + exif if exif else None
    read = _sound(block) if block else (1, None)
    resources = _resources_in(blocks) if blocks else {}
    whole = profile is None or profile.startswith(_ONLY_PART)
    if read is None or resources is None or not whole:
        return None
    orientation, notice = read
    if not notice and resources:
        notice = _plain(_iptc(resources.get(_IPTC_RESOURCE)))
    if not notice and xmp:
        notice = _plain(_rights(xmp))
    return Metadata(orientation, notice, block), profile and profile.removeprefix(_ONLY_PART)


def _resources_in(block: bytes) -> dict[int, bytes] | None:
    """Return Photoshop's resources by their numbers; None for a block that ends too early, or with
    a resolution that Pillow takes for such an end.
    """
    found, at = {}, 0
    try:
        while block.startswith(b"8BIM", at):
            number, name = struct.unpack_from(">HB", block, at + 4)
            at += 7 + name + (7 + name) % 2
            (size,) = struct.unpack_from(">I", block, at)
            found[number] = block[at + 4 : at + 4 + size]
            if number == _RESOLUTION and len(found[number]) < 14:
                return None
            at += 4 + size + size % 2
    except struct.error:
        return None
    return found
