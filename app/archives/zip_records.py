"""The directory of a ZIP: APPNOTE 6.3.10, sections 4.3.12 to 4.3.16, with ZIP64.

The directory is read in windows and never held whole: Python's zipfile makes an object of 600
bytes of every entry before the first can be asked for.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from app.archives.names import decoded, is_hidden, safe_name
from app.archives.source import FileContent
from models.domain.errors import BadArchive

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")

_LONGEST_COMMENT = 0xFFFF
_WINDOW = 1 << 18
"""Bytes of the directory in memory at a time; the longest entry has 196,651."""

_UTF8, _UNIX = 0x800, 3
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075
_TYPE, _REGULAR = 0o170000, 0o100000
ENCRYPTED = 0x2041
"""Flags of encrypted content, strong encryption and a masked directory."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the directory lies in the file, and the number of entries that it states.

    `shift` is added to offsets: the number of bytes before the archive, for instance a program
    that unpacks it.
    """

    start: int
    size: int
    count: int
    shift: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the directory; `offset` is that of its local header in the file."""

    place: int
    raw_name: bytes
    name: str
    regular: bool
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int

    @property
    def end(self) -> int:
        """Return the first byte of the file that surely is no longer part of this entry."""
        return self.offset + 30 + len(self.raw_name) + self.packed


def directory(content: FileContent) -> Directory:
    """Find the directory by the record at the end of the file; raises BadArchive."""
    tail_start = max(0, content.size - _END.size - _LONGEST_COMMENT)
    tail = content.read_at(tail_start, content.size - tail_start)
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0 and len(tail) - at < _END.size:
        at = tail.rfind(b"PK\x05\x06", 0, at)
    if at < 0:
        raise BadArchive("the ZIP is damaged or incomplete: it has no directory at its end")
    _, disk, first, _, count, size, offset, _ = _END.unpack_from(tail, at)
    end = tail_start + at
    locator = content.read_at(max(0, end - _LOCATOR.size), _LOCATOR.size)
    if end >= _LOCATOR.size + _END64.size and locator[:4] == b"PK\x06\x07":
        end -= _LOCATOR.size + _END64.size
        fields = _END64.unpack(content.read_at(end, _END64.size))
        if fields[0] != b"PK\x06\x06":
            raise BadArchive("the ZIP is damaged: its ZIP64 record is not where it should be")
        disk, first, count, size, offset = fields[4], fields[5], *fields[7:]
    if disk or first:
        raise BadArchive("the ZIP is one part of several; send it in one file")
    start = end - size
    if start < 0 or offset > start:
        raise BadArchive("the ZIP is damaged or incomplete: its directory is cut off")
    return Directory(start, size, count, start - offset)


def entries(content: FileContent, where: Directory) -> Iterator[Entry]:
    """Yield the entries in their order; raises BadArchive at a damaged one."""
    position, end = where.start, where.start + where.size
    while position < end:
        window = content.read_at(position, min(_WINDOW, end - position))
        used = 0
        while (parsed := _entry(window, used, position + used, where.shift)) is not None:
            yield parsed[0]
            used = parsed[1]
        if not used:
            raise BadArchive(f"the ZIP's directory is damaged at byte {position}")
        position += used


def entry_at(content: FileContent, where: Directory, place: int) -> Entry:
    """Return the entry whose place another call has yielded."""
    window = content.read_at(place, min(_WINDOW, where.start + where.size - place))
    parsed = _entry(window, 0, place, where.shift)
    assert parsed is not None, "the place comes from `entries`"
    return parsed[0]


def _entry(window: bytes, at: int, place: int, shift: int) -> tuple[Entry, int] | None:
    """Return the entry at a position of the window and where it ends; None if it is cut off."""
    if len(window) - at < _ENTRY.size:
        return None
    found = _ENTRY.unpack_from(window, at)
    signature, made_by, _, flags, method, _, _, crc, packed, size = found[:10]
    n_name, n_extra, n_comment, _, _, attributes, offset = found[10:]
    if signature != b"PK\x01\x02":
        raise BadArchive(f"the ZIP's directory is damaged at byte {place}")
    after = at + _ENTRY.size
    end = after + n_name + n_extra + n_comment
    if end > len(window):
        return None
    raw = window[after : after + n_name]
    extra = _extra(window[after + n_name : end - n_comment])
    if wide := extra.get(_ZIP64):
        size, packed, offset = _wide(wide, size, packed, offset)
    name = safe_name(text := _name(raw, flags, extra.get(_UNICODE_PATH)))
    mode = (attributes >> 16) & _TYPE if made_by >> 8 == _UNIX else 0
    regular = mode in (0, _REGULAR) and not text.endswith(("/", "\\")) and not is_hidden(name)
    entry = Entry(place, raw, name, regular, flags, method, crc, packed, size, offset + shift)
    return entry, end


def _extra(data: bytes) -> dict[int, bytes]:
    """Return the extra fields by their id; bytes that are no field are left out."""
    fields: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        kind, size = struct.unpack_from("<HH", data, at)
        fields.setdefault(kind, data[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


def _wide(field: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Return the three numbers; those that do not fit into 32 bits stand in the ZIP64 field."""
    values = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
    try:
        size = next(values) if size == 0xFFFFFFFF else size
        packed = next(values) if packed == 0xFFFFFFFF else packed
        offset = next(values) if offset == 0xFFFFFFFF else offset
    except StopIteration:
        raise BadArchive("the ZIP's directory is damaged: a ZIP64 field is too short") from None
    return size, packed, offset


def _name(raw: bytes, flags: int, unicode_path: bytes | None) -> str:
    """Return the name: UTF-8 by flag or by content, by Info-ZIP's field, else code page 437."""
    if not flags & _UTF8 and unicode_path and unicode_path[0] == 1 and len(unicode_path) > 5:
        (checksum,) = struct.unpack_from("<L", unicode_path, 1)
        if checksum == zlib.crc32(raw):
            return unicode_path[5:].decode("utf-8", "replace")
    return decoded(raw, "cp437")
