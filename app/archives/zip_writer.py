"""Write a ZIP piece by piece, of any number of members, in constant memory.

Python's zipfile keeps an object of 600 bytes for each member until the end, and a job may have ten
million members. Here the directory is kept as bytes, beyond 1 MiB in an unnamed temporary file. The
bytes are those that zipfile writes to a pipe.
"""

import io
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from typing import Self
from zipfile import ZIP64_LIMIT, ZipFile, ZipInfo

_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_IN_MEMORY, _PIECE = 1 << 20, 1 << 16
_MOST_COUNT = 0xFFFF
"""More members need ZIP64, as larger sizes and offsets than zipfile's limit do."""

_DESCRIPTOR = 0x08
_READABLE_BY_OWNER = 0o600 << 16
_WIDE = 45
"""Version of the format that a reader of ZIP64 must know."""


class ZipWriter:
    """Writer of uncompressed members, as a context manager; the caller sends what it returns.

    For each member call `begin`, then `add` for each piece of the content, whose bytes follow as
    they are, then `end`. Call `finish` once at the end.
    """

    def __init__(self) -> None:
        # Closed by `close`, at the end of the block.
        self._directory = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._position = self._count = 0
        self._member: ZipInfo | None = None
        self._wide = False

    def begin(self, name: str, size: int | None = None) -> bytes:
        """Return the bytes before the content of a member of `size` bytes, if it is known.

        A member of unknown size may have any number of bytes.
        """
        assert self._member is None, "the last member has not ended"
        self._wide = size is None or size * 1.05 > ZIP64_LIMIT
        member = self._member = ZipInfo(
            name.encode(errors="replace").decode(), time.localtime()[:6]
        )
        member.CRC, member.flag_bits = 0, _DESCRIPTOR
        member.header_offset, member.external_attr = self._position, _READABLE_BY_OWNER
        return self._counted(member.FileHeader(self._wide))

    def add(self, piece: bytes | memoryview) -> None:
        """Count a piece of the content, which the caller sends."""
        assert self._member is not None, "no member has begun"
        self._member.CRC = zlib.crc32(piece, self._member.CRC)
        self._member.file_size += len(piece)
        self._member.compress_size += len(piece)
        self._position += len(piece)

    def end(self) -> bytes:
        """Return the bytes after the content: its checksum and its size."""
        assert self._member is not None, "no member has begun"
        member, self._member = self._member, None
        if member.compress_size > ZIP64_LIMIT and not self._wide:
            raise ValueError(f"a member of {member.file_size} bytes was announced as smaller")
        self._directory.write(_entry(member))
        self._count += 1
        form = "<4sLQQ" if self._wide else "<4sLLL"
        sizes = (member.compress_size, member.file_size)
        return self._counted(struct.pack(form, b"PK\x07\x08", member.CRC, *sizes))

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


def _entry(member: ZipInfo) -> bytes:
    """Return a member's entry of the directory as zipfile writes it."""
    sink = io.BytesIO()
    with ZipFile(sink, "w") as directory:
        directory.filelist.append(member)
    return sink.getvalue()[: -_END.size]
