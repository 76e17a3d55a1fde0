"""A ZIP as an `Archive`: every member is read on its own, so a damaged one harms no other."""

import bz2
import struct
import zlib
from array import array
from collections.abc import Iterator
from threading import Lock
from typing import Self

import numpy as np

from app.archives.limits import ArchiveLimits, check_size
from app.archives.member import Member
from app.archives.name_index import NameIndex
from app.archives.source import FileContent
from app.archives.zip_records import ENCRYPTED, Directory, Entry, directory, entries, entry_at
from models.domain.errors import BadArchive

_LOCAL = struct.Struct("<4s5H3L2H")
_PIECE = 1 << 16
"""Packed bytes that are read at a time."""

STORED, DEFLATED, BZIP2 = 0, 8, 12


class ZipArchive:
    """A ZIP whose directory was checked: number of members, bytes unpacked, and no overlaps."""

    def __init__(self, content: FileContent, limits: ArchiveLimits) -> None:
        self._content = content
        self._names: NameIndex | None = None
        self._lock = Lock()
        try:
            self._directory = directory(self._content)
            limits.check_count(self._directory.count)
            _check(self._content, self._directory, limits)
        except BaseException:
            self.close()
            raise

    def members(self) -> Iterator[Member]:
        """Yield the regular files in the order of the directory."""
        index = 0
        for each in entries(self._content, self._directory):
            if each.regular:
                yield Member(index, each.name, each.size, each.place)
                index += 1

    def read(self, member: Member, limit: int) -> bytes:
        """Return the content of a member, checked by its CRC; raises TooLarge and BadArchive."""
        check_size(member.size, limit)
        entry = entry_at(self._content, self._directory, member.place)
        if entry.flags & ENCRYPTED:
            raise BadArchive(f"{_quoted(entry)} is encrypted; send it without a password")
        start = self._start(entry)
        try:
            data = b"".join(_unpacked(self._packed(entry, start), entry))
        except (zlib.error, OSError, EOFError):
            raise _damaged(entry) from None
        if len(data) != entry.size or zlib.crc32(data) != entry.crc:
            raise _damaged(entry)
        return data

    def find(self, name: str) -> Member | None:
        """Return the last member of that name; the first call walks the whole directory."""
        with self._lock:
            if self._names is None:
                self._names = NameIndex(self.members())
        return self._names.find(name)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, entry: Entry) -> int:
        """Return where the packed bytes begin, by the local header."""
        header = self._content.read_at(entry.offset, _LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
            raise _damaged(entry)
        n_name, n_extra = _LOCAL.unpack(header)[-2:]
        start: int = entry.offset + _LOCAL.size + n_name + n_extra
        if start + entry.packed > self._directory.start:
            raise _damaged(entry)
        return start

    def _packed(self, entry: Entry, start: int) -> Iterator[bytes]:
        end = start + entry.packed
        for position in range(start, end, _PIECE):
            yield self._content.read_at(position, min(_PIECE, end - position))


def _check(content: FileContent, where: Directory, limits: ArchiveLimits) -> None:
    """Walk the directory once; raises BadArchive if it breaks a limit or entries share bytes.

    Overlapping entries are how a ZIP of 10 MB unpacks to 281 TB without any ZIP inside
    (D. Fifield, "A better zip bomb", USENIX WOOT 2019).
    """
    starts, ends, unpacked = array("Q"), array("Q"), 0
    for count, each in enumerate(entries(content, where), 1):
        limits.check_count(count)
        unpacked += each.size
        limits.check_expansion(unpacked, content.size)
        if each.end > where.start:
            raise BadArchive(f"the ZIP is damaged: {_quoted(each)} reaches into the directory")
        starts.append(each.offset)
        ends.append(each.end)
    # Spans share no byte if and only if, sorted each on its own, no start comes before the end that
    # precedes it: else a byte would lie behind more starts than ends by two. Sorted in place, they
    # take 16 bytes for an entry.
    first, last = np.frombuffer(starts, np.uint64), np.frombuffer(ends, np.uint64)
    first.sort()
    last.sort()
    if (first[1:] < last[:-1]).any():
        raise BadArchive("the ZIP is refused: entries share bytes, as those of zip bombs do")


def _unpacked(packed: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield the content in pieces; never more bytes than the entry states, whatever is packed."""
    if entry.method == STORED:
        if entry.packed != entry.size:
            raise _damaged(entry)
        yield from packed
    elif entry.method == DEFLATED:
        yield from _inflated(packed, entry)
    elif entry.method == BZIP2:
        yield from _bunzipped(packed, entry)
    else:
        raise BadArchive(
            f"{_quoted(entry)} is packed by method {entry.method}; stored (0), deflate (8) and "
            "bzip2 (12) are read"
        )


def _inflated(packed: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    inflate, left = zlib.decompressobj(-zlib.MAX_WBITS), entry.size
    for piece in packed:
        while piece and not inflate.eof:
            # One byte more than is left shows that there is more than the directory states.
            found = inflate.decompress(piece, left + 1)
            piece = inflate.unconsumed_tail
            left -= len(found)
            if left < 0:
                raise _damaged(entry)
            yield found


def _bunzipped(packed: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    bunzip, left = bz2.BZ2Decompressor(), entry.size
    for piece in packed:
        while not bunzip.eof:
            found = bunzip.decompress(piece, left + 1)
            piece = b""
            left -= len(found)
            if left < 0:
                raise _damaged(entry)
            yield found
            if bunzip.needs_input or not found:
                break


def _damaged(entry: Entry) -> BadArchive:
    return BadArchive(f"{_quoted(entry)} is damaged in the ZIP; make the ZIP again")


def _quoted(entry: Entry) -> str:
    return repr(entry.name[:200])
