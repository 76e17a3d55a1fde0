"""Bodies of uploads and downloads: small ones in memory, large ones in unnamed temporary files.

Ownership: a Spool owns the bytes until `finish`, then the Blob does, and its holder closes it. The
files have no names, so nothing stays on disk after a cancelled request or a killed process.
"""

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, BinaryIO

from aiofiles.tempfile import TemporaryFile

from models.domain.errors import Overloaded, TooLarge

PIECE = 1 << 20
"""Bytes of a file that are in memory at the same time while its digest is made."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Errors of a full disk, and of a process or system that has no descriptor left: both pass."""

IN_MEMORY = 64 << 20
"""Largest number of bytes of all bodies that one process keeps in memory."""

PART = 16
"""Times the size of a body that must be free of the budget, or the body does not stay in memory."""

SMALL, SMALL_BEYOND = 1 << 16, 4
"""Largest body, in bytes, that stays in memory even beyond the budget, and which part of the budget
such bodies have beyond it: 1 / SMALL_BEYOND."""

TINY, TINY_BEYOND = 1 << 15, 2
"""The same of bodies that never go to disk, where each would cost a descriptor. They are refused
beyond their part."""


class MemoryUse:
    """Counter of the bytes that all blobs of a process hold in memory; `limit` is the budget.

    Blobs may be closed on any thread.
    """

    def __init__(self, limit: int = IN_MEMORY) -> None:
        self.limit = limit
        self.held = 0
        self._lock = threading.Lock()

    def add(self, n_bytes: int) -> None:
        """Count more bytes, or fewer where `n_bytes` is negative."""
        with self._lock:
            self.held += n_bytes

    def take(self, size: int, more: int) -> None:
        """Count `more` bytes of a body of `size` bytes that stays in memory; raise Overloaded."""
        if size <= TINY and self.held + more > self.limit + self.limit // TINY_BEYOND:
            raise Overloaded(
                f"bodies hold {self.held} bytes of memory; try again later",
                retry_after=1.0,
                reason="memory_bytes",
            )
        self.add(more)

    def full(self, more: int) -> bool:
        """Return whether a body of `more` bytes should not stay in memory.

        It may take a sixteenth of what is free, so that photos stay in memory long after larger
        bodies go to disk, and large bodies alone never fill the budget. A small one may take what
        is left of the part beyond the budget, and a tiny one stays.
        """
        free = self.limit - self.held
        if more > SMALL:
            return PART * more > free
        return more > TINY and free + self.limit // SMALL_BEYOND < more


MEMORY = MemoryUse()


class Blob:
    """A finished body of `size` bytes.

    `read` blocks if they are on disk, so call it on a codec thread. `close` may be called on any
    thread at any time: `read` then returns the bytes or raises ValueError. A Blob that was not
    closed, for instance because its request was cancelled, closes itself when it is deleted.
    """

    __slots__ = ("_data", "_digest", "_file", "size")

    def __init__(
        self, data: bytes | None, file: BinaryIO | None, size: int, *, counted: bool = False
    ) -> None:
        """Own these bytes or this file; `counted`: MEMORY has counted the bytes already."""
        self._data = data
        self._file = file
        self._digest: bytes | None = None
        self.size = size
        if data is not None and not counted:
            MEMORY.add(size)

    @classmethod
    def of(cls, data: bytes) -> "Blob":
        """Return a blob of bytes that are in memory already."""
        return cls(data, None, len(data))

    @property
    def on_disk(self) -> bool:
        """Return whether the bytes are in a file."""
        return self._file is not None

    def read(self) -> bytes:
        """Return all bytes; those in memory are the same object each time, not a copy."""
        data, file = self._data, self._file
        if data is not None:
            return data
        if file is None:
            raise ValueError("the blob is closed")
        file.seek(0)
        return file.read()

    def start(self, n: int) -> bytes:
        """Return at most the first `n` bytes; those of a file usually come from the page cache."""
        if self._data is not None:
            return self._data[:n]
        if self._file is None:
            raise ValueError("the blob is closed")
        return os.pread(self._file.fileno(), n, 0)

    def digest(self) -> bytes:
        """Return the SHA-256 of all bytes, computed once; it blocks as `read` does.

        A file is read in pieces of PIECE bytes, because digests are made before the memory of an
        image is counted. With the SHA instructions of x86 it is faster than BLAKE2b: 59 µs and
        86 µs for 110 kB.
        """
        if self._digest is None:
            with self.shown() as content:
                self._digest = _sha256(content)
        return self._digest

    @contextmanager
    def shown(self) -> Iterator[bytes | int]:
        """Provide the bytes, or a read-only descriptor of the file, while the block runs."""
        if self._data is not None:
            yield self._data
            return
        if self._file is None:
            raise ValueError("the blob is closed")
        with _as_overload():
            descriptor = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the bytes or the file; may be called again."""
        data, self._data = self._data, None
        if data is not None:
            MEMORY.add(-self.size)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    __del__ = close


class Spool:
    """Collector of at most `limit` bytes; more than `threshold` of them move to disk.

    While all bodies of the process hold too much memory, SMALL takes the place of `threshold`, and
    then TINY: hundreds of requests that wait for their turn must not fill the memory with their
    uploads, nor hundreds whose bodies arrive at the same time.

    Use it as a context manager: at the end of the block it closes what `finish` has not returned,
    also when the block is cancelled. A body of one chunk is never copied.
    """

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
        if self._chunks:
            self._forget_chunks()
        if self._file is not None:
            with suppress(OSError):  # closing writes what a full disk did not take before
                await self._file.close()

    def expect(self, size: int) -> None:
        """Raise TooLarge if `size`, the announced number of bytes, is over the limit."""
        if size > self._limit:
            raise self._too_large(f"{size}")

    async def write(self, chunk: bytes) -> None:
        """Add a chunk; raises TooLarge, Overloaded (also for a full disk), and OSError."""
        if not chunk:
            return
        self._size += len(chunk)
        if self._size > self._limit:
            raise self._too_large(f"more than {self._limit}")
        if self._file is not None:
            with _as_overload():
                await self._file.write(chunk)
            return
        full = self._size > self._threshold or MEMORY.full(self._size)
        if full:
            MEMORY.add(len(chunk))
        else:
            MEMORY.take(self._size, len(chunk))
        self._chunks.append(chunk)
        if full:
            with _as_overload():
                self._file = await TemporaryFile("w+b")
                await self._file.writelines(self._chunks)
            self._forget_chunks()

    async def finish(self) -> Blob:
        """Return all bytes as a Blob, which owns them from now on; raises as `write` does."""
        if self._file is None:
            chunks, self._chunks = self._chunks, []  # the Blob has to give their count back
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            return Blob(data, None, self._size, counted=True)
        with _as_overload():
            await self._file.flush()
        file, self._file = self._file._file, None
        return Blob(None, file, self._size)

    def _forget_chunks(self) -> None:
        MEMORY.add(-sum(map(len, self._chunks)))
        self._chunks.clear()

    def _too_large(self, size: str) -> TooLarge:
        return TooLarge(
            f"the image has {size} bytes; one has at most {self._limit} (DARKROOM_MAX_IMAGE_BYTES)"
        )


@contextmanager
def _as_overload() -> Iterator[None]:
    """Raise Overloaded in place of an OSError of NO_ROOM."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise Overloaded(
            "the server has no room on its disk, or no free descriptor, for this body; "
            "try again later",
            retry_after=1.0,
            reason="disk",
        ) from error


def _sha256(content: bytes | int) -> bytes:
    """Return the SHA-256 of bytes, or of a file that is a descriptor, whose position stays."""
    if isinstance(content, bytes):
        return hashlib.sha256(content, usedforsecurity=False).digest()
    digest, start = hashlib.sha256(usedforsecurity=False), 0
    while piece := os.pread(content, PIECE, start):
        digest.update(piece)
        start += len(piece)
    return digest.digest()
