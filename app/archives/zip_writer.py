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
_UNIX, _READABLE_BY_OWNER = 3, 0o600 << 16
_PLAIN, _WIDE = 20, 45
"""Versions of the format that a reader must know."""


class ZipWriter:
    """Writer of uncompressed members, as a context manager; the caller sends what it returns.

    For each member call `begin`, then `add` for each piece of the content, whose bytes follow as
    they are, then `end`. Call `finish` once at the end.
    """

    def __init__(self) -> None:
        # Closed by `close`, at the end of the block.
        self._directory = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._position = self._count = 0
        self._member: _Member | None = None

    def begin(self, name: str, size: int | None = None) -> bytes:
        """Return the bytes before the content of a member of `size` bytes, if it is known.

        A member of unknown size may have any number of bytes.
        """
        assert self._member is None, "the last member has not ended"
        wide = size is None or size * 1.05 > _MOST
        encoded = name.encode("utf-8", "replace")
        flags = _DESCRIPTOR | (0 if name.isascii() else _UTF8)
        member = self._member = _Member(encoded, flags, wide, self._position, *_now())
        extra = struct.pack("<HHQQ", 1, 16, 0, 0) if wide else b""
        sizes = (0xFFFFFFFF, 0xFFFFFFFF) if wide else (0, 0)
        fields = (member.version, flags, 0, member.time, member.date, 0, *sizes)
        header = _LOCAL.pack(b"PK\x03\x04", *fields, len(encoded), len(extra))
        return self._counted(header + encoded + extra)

    def add(self, piece: bytes | memoryview) -> None:
        """Count a piece of the content, which the caller sends."""
        assert self._member is not None, "no member has begun"
        self._member.crc = zlib.crc32(piece, self._member.crc)
        self._member.size += len(piece)
        self._position += len(piece)

    def end(self) -> bytes:
        """Return the bytes after the content: its checksum and its size."""
        member, self._member = self._member, None
        assert member is not None, "no member has begun"
        if member.size > _MOST and not member.wide:
            raise ValueError(f"a member of {member.size} bytes was announced as smaller")
        self._directory.write(member.entry())
        self._count += 1
        form = "<4sLQQ" if member.wide else "<4sLLL"
        descriptor = struct.pack(form, b"PK\x07\x08", member.crc, member.size, member.size)
        return self._counted(descriptor)

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

    __slots__ = ("crc", "date", "flags", "name", "offset", "size", "time", "version", "wide")

    def __init__(
        self, name: bytes, flags: int, wide: bool, offset: int, time: int, date: int
    ) -> None:
        self.name, self.flags, self.wide, self.offset = name, flags, wide, offset
        self.time, self.date, self.crc, self.size = time, date, 0, 0
        self.version = _WIDE if wide else _PLAIN

    def entry(self) -> bytes:
        """Return the member's entry of the directory, which has the numbers that are known now."""
        numbers: list[int] = []
        size, offset = self.size, self.offset
        if size > _MOST:
            numbers += [size, size]
            size = 0xFFFFFFFF
        if offset > _MOST:
            numbers.append(offset)
            offset = 0xFFFFFFFF
        extra = b""
        if numbers:
            extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
        version = _WIDE if numbers or self.wide else _PLAIN
        made = version | _UNIX << 8
        fields = (made, version, self.flags, 0, self.time, self.date, self.crc, size, size)
        lengths = (len(self.name), len(extra), 0, 0, 0, _READABLE_BY_OWNER, offset)
        return _ENTRY.pack(b"PK\x01\x02", *fields, *lengths) + self.name + extra


def _now() -> tuple[int, int]:
    """Return time and date as MS-DOS writes them, in steps of two seconds from 1980."""
    year, month, day, hour, minute, second = time.localtime()[:6]
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
