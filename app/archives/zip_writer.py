"""Write a ZIP piece by piece, of any number of members, in constant memory.

Python's zipfile keeps an object of 600 bytes for each member until the end. Here the directory is
kept as bytes, beyond 1 MiB in an unnamed temporary file. The bytes are those that zipfile writes
to a pipe.
"""

import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_IN_MEMORY, _PIECE = 1 << 20, 1 << 16
_MOST, _MOST_COUNT = (1 << 31) - 1, 0xFFFF
"""Larger sizes and offsets, and more members, need ZIP64; the limits are those of zipfile."""

_DESCRIPTOR, _UTF8 = 0x08, 0x800
_STORED, _DEFLATED = 0, 8
_BLOCK = struct.Struct("<BHH")
_LONGEST_BLOCK = 0xFFFF
"""A stored block of Deflate (RFC 1951, 3.2.4): whether it is the last one, its length, and its
length with all bits turned. One of no bytes adds nothing, so any number of them may be sent."""
_UNIX, _READABLE_BY_OWNER = 3, 0o600 << 16
_FOLDER_OF_OWNER = 0o40700 << 16 | 0x10
"""The mode of a folder, with the bit of MS-DOS: `unzip` gives it to the folder that it makes. With
mode 600, its owner could not open it."""
_PLAIN, _WIDE = 20, 45
"""Versions of the format that a reader must know."""


class ZipWriter:
    """Writer of uncompressed members, as a context manager; the caller sends what it returns.

    For each member call `begin`, then `add` for each piece of the content, whose bytes follow as
    they are, then `end`. Call `finish` once at the end.

    A member that is `padded` has the method Deflate, with blocks that store its content as it is:
    call `content` in place of `add`, and `pad` while there is nothing to send. So a receiver gets
    bytes while the next member is made, and the archive is as valid as any other.
    """

    def __init__(self) -> None:
        # Closed by `close`, at the end of the block.
        self._directory = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._position = self._count = 0
        self._member: _Member | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a member has begun and not ended."""
        return self._member is not None

    def begin(self, name: str, size: int | None = None, *, padded: bool = False) -> bytes:
        """Return the bytes before the content of a member of `size` bytes, if it is known.

        A member of unknown size may have any number of bytes.
        """
        assert self._member is None, "the last member has not ended"
        wide = size is None or size * 1.05 > _MOST
        encoded = name.encode("utf-8", "replace")
        flags = _DESCRIPTOR | (0 if name.isascii() else _UTF8)
        method = _DEFLATED if padded else _STORED
        member = self._member = _Member(encoded, flags, method, wide, self._position, *_now())
        extra = struct.pack("<HHQQ", 1, 16, 0, 0) if wide else b""
        sizes = (0xFFFFFFFF, 0xFFFFFFFF) if wide else (0, 0)
        fields = (member.version, flags, method, member.time, member.date, 0, *sizes)
        header = _LOCAL.pack(b"PK\x03\x04", *fields, len(encoded), len(extra))
        return self._counted(header + encoded + extra)

    def add(self, piece: bytes | memoryview) -> None:
        """Count a piece of the content, which the caller sends."""
        assert self._member is not None, "no member has begun"
        self._member.crc = zlib.crc32(piece, self._member.crc)
        self._member.size += len(piece)
        self._member.packed += len(piece)
        self._position += len(piece)

    def content(self, piece: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Count a piece of the content, and yield what to send for it."""
        assert self._member is not None, "no member has begun"
        if self._member.method == _STORED:
            self.add(piece)
            yield piece
            return
        for start in range(0, len(piece), _LONGEST_BLOCK):
            part = piece[start : start + _LONGEST_BLOCK]
            yield self._block(len(part))
            self.add(part)
            yield part

    def pad(self) -> bytes:
        """Return bytes that add nothing to a padded member, between two pieces of its content."""
        return self._block(0)

    def _block(self, size: int, *, last: bool = False) -> bytes:
        assert self._member is not None, "no member has begun"
        assert self._member.method == _DEFLATED, "the member is not padded"
        self._member.packed += _BLOCK.size
        return self._counted(_BLOCK.pack(last, size, size ^ _LONGEST_BLOCK))

    def end(self) -> bytes:
        """Return the bytes after the content: its checksum and its size."""
        assert self._member is not None, "no member has begun"
        last = self._block(0, last=True) if self._member.method == _DEFLATED else b""
        member, self._member = self._member, None
        if member.packed > _MOST and not member.wide:
            raise ValueError(f"a member of {member.size} bytes was announced as smaller")
        self._directory.write(member.entry())
        self._count += 1
        form = "<4sLQQ" if member.wide else "<4sLLL"
        descriptor = struct.pack(form, b"PK\x07\x08", member.crc, member.packed, member.size)
        return last + self._counted(descriptor)

    def finish(self) -> Iterator[bytes]:
        """Yield the directory in pieces, then the end of the archive."""
        assert self._member is None, "the last member has not ended"
        size, start, count = self._directory.tell(), self._position, self._count
        self._directory.seek(0)
        while piece := self._directory.read(_PIECE):
            yield piece
        if count > _MOST_COUNT or start > _MOST or size > _MOST:
            at = start + size
            numbers = (44, _WIDE, _WIDE, 0, 0, count, count, size, start)
            yield _END64.pack(b"PK\x06\x06", *numbers)
            yield _LOCATOR.pack(b"PK\x06\x07", 0, at, 1)
        count, size = min(count, 0xFFFF), min(size, 0xFFFFFFFF)
        yield _END.pack(b"PK\x05\x06", 0, 0, count, count, size, min(start, 0xFFFFFFFF), 0)

    def close(self) -> None:
        """Release the directory; may be called again."""
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _counted(self, data: bytes) -> bytes:
        self._position += len(data)
        return data


class _Member:
    """The member that is being written."""

    __slots__ = (
        "crc",
        "date",
        "flags",
        "method",
        "name",
        "offset",
        "packed",
        "size",
        "time",
        "version",
        "wide",
    )

    def __init__(
        self, name: bytes, flags: int, method: int, wide: bool, offset: int, time: int, date: int
    ) -> None:
        self.name, self.flags, self.wide, self.offset = name, flags, wide, offset
        self.method, self.time, self.date = method, time, date
        self.crc = self.size = self.packed = 0
        self.version = _WIDE if wide else _PLAIN

    def entry(self) -> bytes:
        """Return the member's entry of the directory, which has the numbers that are known now."""
        numbers: list[int] = []
        size, packed, offset = self.size, self.packed, self.offset
        if packed > _MOST:
            numbers += [size, packed]
            size = packed = 0xFFFFFFFF
        if offset > _MOST:
            numbers.append(offset)
            offset = 0xFFFFFFFF
        extra = b""
        if numbers:
            extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
        version = _WIDE if numbers or self.wide else _PLAIN
        made = version | _UNIX << 8
        numbered = (self.time, self.date, self.crc, packed, size)
        fields = (made, version, self.flags, self.method, *numbered)
        mode = _FOLDER_OF_OWNER if self.name.endswith(b"/") else _READABLE_BY_OWNER
        lengths = (len(self.name), len(extra), 0, 0, 0, mode, offset)
        return _ENTRY.pack(b"PK\x01\x02", *fields, *lengths) + self.name + extra


def _now() -> tuple[int, int]:
    """Return time and date as MS-DOS writes them, in steps of two seconds from 1980."""
    year, month, day, hour, minute, second = time.localtime()[:6]
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
