"""Write a ZIP piece by piece, of any number of members, in constant memory.

Python's zipfile keeps an object of 600 bytes for each member until the end, and a job may have ten
million members. Here each member is an archive of its own for zipfile, whose entry of the directory
is kept as bytes, beyond 1 MiB in an unnamed temporary file.
"""

import struct
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Self, cast
from zipfile import ZIP64_LIMIT, ZipFile, ZipInfo

_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_IN_MEMORY, _PIECE = 1 << 20, 1 << 16
_MOST_COUNT = 0xFFFF
"""More members need ZIP64, as larger sizes and offsets than zipfile's limit do."""

_WIDE = 45
"""Version of the format that a reader of ZIP64 must know."""


class Pipe:
    """Destination of a file without a way back: `data` was written last, `position` is its end."""

    closed = False

    def __init__(self) -> None:
        self.data = bytearray()
        self.position = 0

    def write(self, data: bytes) -> int:
        """Add bytes behind those that were written."""
        self.data += data
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of all bytes that were written."""
        return self.position

    def flush(self) -> None:
        """Do nothing, as `close`: writers call both."""

    close = flush

    def taken(self) -> bytes:
        """Return the bytes that were written since the last call."""
        data, self.data = bytes(self.data), bytearray()
        return data


class ZipWriter:
    """Writer of uncompressed members, as a context manager; the caller sends what it returns.

    For each member call `begin`, then `add` for each piece of the content, whose bytes follow as
    they are, then `end`. Call `finish` once at the end.
    """

    def __init__(self) -> None:
        # Closed by `close`, at the end of the block.
        self._directory = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._pipe = Pipe()
        self._count = 0

    def begin(self, name: str, size: int | None = None) -> bytes:
        """Return the bytes before the content of a member of `size` bytes, if it is known.

        A member of unknown size may have any number of bytes.
        """
        info = ZipInfo(name.encode(errors="replace").decode(), time.localtime()[:6])
        info.file_size = size or 0
        self._zip = ZipFile(cast(Any, self._pipe), "w")
        self._member = self._zip.open(info, "w", force_zip64=size is None)
        return self._pipe.taken()

    def add(self, piece: bytes | memoryview) -> None:
        """Count a piece of the content, which the caller sends."""
        self._member.write(piece)
        self._pipe.data.clear()

    def end(self) -> bytes:
        """Return the bytes after the content: its checksum and its size."""
        self._member.close()
        data, end = self._pipe.taken(), self._pipe.position
        self._zip.close()
        entry = self._pipe.taken()  # and the end of the archive of one member
        self._directory.write(entry[: 46 + sum(struct.unpack_from("<3H", entry, 28))])
        self._pipe.position, self._count = end, self._count + 1
        return data

    def finish(self) -> Iterator[bytes]:
        """Yield the directory in pieces, then the end of the archive."""
        size, start, count = self._directory.tell(), self._pipe.position, self._count
        self._directory.seek(0)
        while piece := self._directory.read(_PIECE):
            yield piece
        if count > _MOST_COUNT or start > ZIP64_LIMIT or size > ZIP64_LIMIT:
            numbers = (44, _WIDE, _WIDE, 0, 0, count, count, size, start)
            yield _END64.pack(b"PK\x06\x06", *numbers)
            yield _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
        count, size = min(count, 0xFFFF), min(size, 0xFFFFFFFF)
        yield _END.pack(b"PK\x05\x06", 0, 0, count, count, size, min(start, 0xFFFFFFFF), 0)

    def close(self) -> None:
        """Release the directory; may be called again."""
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
