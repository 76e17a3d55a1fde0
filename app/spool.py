"""Bytes on their way in: in memory while small, in an unnamed temporary file when large.

Ownership: a Spool owns what was written until `finish`, then the Blob does. Temporary files have no
name, so whatever is forgotten, cancelled or killed leaves nothing behind.
"""

from types import TracebackType
from typing import Any, BinaryIO

from aiofiles.tempfile import TemporaryFile

from models.errors import TooLarge


class Blob:
    """A finished body. `read` blocks when it is on disk, so it belongs on a codec thread."""

    __slots__ = ("_data", "_file", "size")

    def __init__(self, data: bytes | None, file: BinaryIO | None, size: int) -> None:
        self._data = data
        self._file = file
        self.size = size

    @classmethod
    def of(cls, data: bytes) -> "Blob":
        """Bytes that are in memory anyway."""
        return cls(data, None, len(data))

    @property
    def on_disk(self) -> bool:
        """Whether `read` reads a file."""
        return self._file is not None

    def read(self) -> bytes:
        """All bytes; the same object each time while they are in memory."""
        if self._data is not None:
            return self._data
        assert self._file is not None, "the blob is closed"
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Let go of the bytes, or of the file; may be called again."""
        self._data = None
        if self._file is not None:
            self._file.close()
            self._file = None


class Spool:
    """Collects at most `limit` bytes; more than `threshold` of them move to disk."""

    def __init__(self, limit: int, threshold: int) -> None:
        self._limit = limit
        self._threshold = threshold
        self._chunks: list[bytes] = []
        self._size = 0
        self._file: Any = None

    async def __aenter__(self) -> "Spool":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what `finish` has not handed over."""
        if self._file is not None:
            await self._file.close()

    async def write(self, chunk: bytes) -> None:
        """Take one more chunk; raises TooLarge."""
        self._size += len(chunk)
        if self._size > self._limit:
            raise TooLarge(f"more than {self._limit} bytes, the limit for one image")
        if self._file is not None:
            await self._file.write(chunk)
            return
        self._chunks.append(chunk)
        if self._size > self._threshold:
            self._file = await TemporaryFile("w+b")
            await self._file.write(b"".join(self._chunks))
            self._chunks.clear()

    async def finish(self) -> Blob:
        """What was written; the Blob owns it from here."""
        if self._file is None:
            chunks = [chunk for chunk in self._chunks if chunk]
            return Blob.of(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        await self._file.flush()
        file, self._file = self._file._file, None
        return Blob(None, file, self._size)
