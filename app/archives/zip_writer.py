"""Write a ZIP piece by piece, of any number of members, in constant memory.

Python's zipfile, and the ZIP streams of the package index (zipstream-ng, stream-zip), keep an
object of 600 bytes or more for each member until the end, and none can send anything while the next
member is made. Here the directory is kept as bytes, beyond 1 MiB in an unnamed temporary file. The
bytes are those that zipfile writes to a pipe.
"""

import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Self
from zipfile import ZIP64_LIMIT, ZIP_DEFLATED, ZIP_STORED, ZipInfo

_ENTRY = struct.Struct("<4s2H8s3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_IN_MEMORY, _PIECE = 1 << 20, 1 << 16
_MOST_COUNT = 0xFFFF
"""More members need ZIP64, as larger sizes and offsets than zipfile's limit do."""

_DESCRIPTOR = 0x08
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
        self._member: ZipInfo | None = None
        self._wide = False

    @property
    def is_open(self) -> bool:
        """Return whether a member has begun and not ended."""
        return self._member is not None

    def begin(self, name: str, size: int | None = None, *, padded: bool = False) -> bytes:
        """Return the bytes before the content of a member of `size` bytes, if it is known.

        A member of unknown size may have any number of bytes.
        """
        assert self._member is None, "the last member has not ended"
        self._wide = size is None or size * 1.05 > ZIP64_LIMIT
        member = self._member = ZipInfo(
            name.encode(errors="replace").decode(), time.localtime()[:6]
        )
        member.CRC, member.flag_bits = 0, _DESCRIPTOR
        member.compress_type = ZIP_DEFLATED if padded else ZIP_STORED
        member.header_offset = self._position
        return self._counted(member.FileHeader(self._wide))

    def add(self, piece: bytes | memoryview) -> None:
        """Count a piece of the content, which the caller sends."""
        assert self._member is not None, "no member has begun"
        self._member.CRC = zlib.crc32(piece, self._member.CRC)
        self._member.file_size += len(piece)
        self._member.compress_size += len(piece)
        self._position += len(piece)

    def content(self, piece: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Count a piece of the content, and yield what to send for it."""
        assert self._member is not None, "no member has begun"
        if self._member.compress_type == ZIP_STORED:
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
        assert self._member.compress_type == ZIP_DEFLATED, "the member is not padded"
        self._member.compress_size += _BLOCK.size
        return self._counted(_BLOCK.pack(last, size, size ^ _LONGEST_BLOCK))

    def end(self) -> bytes:
        """Return the bytes after the content: its checksum and its size."""
        assert self._member is not None, "no member has begun"
        last = self._block(0, last=True) if self._member.compress_type == ZIP_DEFLATED else b""
        member, self._member = self._member, None
        if member.compress_size > ZIP64_LIMIT and not self._wide:
            raise ValueError(f"a member of {member.file_size} bytes was announced as smaller")
        self._directory.write(_entry(member, wide=self._wide))
        self._count += 1
        form = "<4sLQQ" if self._wide else "<4sLLL"
        sizes = (member.compress_size, member.file_size)
        return last + self._counted(struct.pack(form, b"PK\x07\x08", member.CRC, *sizes))

    def finish(self) -> Iterator[bytes]:
        """Yield the directory in pieces, then the end of the archive."""
        assert self._member is None, "the last member has not ended"
        size, start, count = self._directory.tell(), self._position, self._count
        self._directory.seek(0)
        while piece := self._directory.read(_PIECE):
            yield piece
        if count > _MOST_COUNT or start > ZIP64_LIMIT or size > ZIP64_LIMIT:
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _counted(self, data: bytes) -> bytes:
        self._position += len(data)
        return data


def _entry(member: ZipInfo, *, wide: bool) -> bytes:
    """Return a member's entry of the directory, which has the numbers that are known now."""
    numbers: list[int] = []
    size, packed, offset = member.file_size, member.compress_size, member.header_offset
    if packed > ZIP64_LIMIT:
        numbers += [size, packed]
        size = packed = 0xFFFFFFFF
    if offset > ZIP64_LIMIT:
        numbers.append(offset)
        offset = 0xFFFFFFFF
    extra = b""
    if numbers:
        extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
    version = _WIDE if numbers or wide else _PLAIN
    header = member.FileHeader(wide)
    name = header[30 : 30 + int.from_bytes(header[26:28], "little")]
    # Flags, method, time and date are those of the header before the content.
    fields = (version | _UNIX << 8, version, header[6:14], member.CRC, packed, size)
    mode = _FOLDER_OF_OWNER if name.endswith(b"/") else _READABLE_BY_OWNER
    lengths = (len(name), len(extra), 0, 0, 0, mode, offset)
    return _ENTRY.pack(b"PK\x01\x02", *fields, *lengths) + name + extra
