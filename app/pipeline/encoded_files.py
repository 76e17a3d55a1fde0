"""Keep encoded images until their clients have read them: in memory, or on disk for slow readers.

A client may ask for many large images and read none of them. Beyond a budget of memory new files
go to unnamed temporary files. Beyond a limit for all files, those that were not read for `IDLE`
seconds are dropped, and their answers end incomplete.
"""

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import BinaryIO
from weakref import WeakValueDictionary

from app.admission.counters import Counters, Total
from models.domain.errors import Cancelled, Overloaded

log = logging.getLogger("darkroom.pipeline")

IN_MEMORY = 32 << 20
"""Largest number of bytes of waiting files that a front end keeps in memory."""

SMALL = 1 << 16
"""Largest file, in bytes, that always stays in memory: the buffers of its connection hold as much.
"""

IDLE = 5.0
"""Seconds without a read after which a file may be dropped."""


class EncodedFile:
    """The bytes of an encoded image; `size` are their number. Used on the event loop only.

    The bytes count for `files`, if there are any, until the file is dropped. Nothing refers to
    a file any more when its last sender has let go of it, so no way in which an answer can end
    forgets to give its bytes back.
    """

    __slots__ = ("__weakref__", "_data", "_file", "_files", "read_at", "size")

    def __init__(self, data: bytes, files: "EncodedFiles | None" = None) -> None:
        self._data: bytes | None = data
        self._file: BinaryIO | None = None
        self._files = files
        self.size = len(data)
        self.read_at = 0.0

    @property
    def in_memory(self) -> bool:
        """Return whether the bytes are in memory; they are neither there nor on disk if dropped."""
        return self._data is not None

    def read(self, start: int = 0, n: int | None = None) -> bytes:
        """Return `n` bytes from `start`, or all after it; raises Cancelled if they were dropped.

        All bytes are no copy if they are in memory. A part is a copy, so that its sender does not
        hold the whole file in memory. From disk it comes out of the page cache as a rule.
        """
        if self._files is not None:
            self._files.was_read(self)
        if self._data is not None:
            whole = not start and (n is None or n >= self.size)
            return self._data if whole else self._data[start : None if n is None else start + n]
        if self._file is None:
            raise Cancelled("the client read too slowly")
        return os.pread(self._file.fileno(), self.size - start if n is None else n, start)

    def move(self, file: BinaryIO) -> None:
        """Take a file that has the same bytes, and let go of those in memory."""
        if self._files is None:  # dropped meanwhile
            file.close()
            return
        self._data, self._file = None, file
        self._files.memory -= self.size

    def drop(self) -> None:
        """Let go of the bytes; `read` raises from now on."""
        files, self._files = self._files, None
        if files is not None:
            files.forget(self)
        self._data = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    __del__ = drop


class EncodedFiles:
    """The files of a front end that wait to be sent, in the order of their last reads.

    `limit` is the largest number of bytes of all files, in memory and on disk; front ends with the
    same `counters` share it. A new limit holds from now on; files that are kept already stay.
    """

    def __init__(
        self,
        limit: int,
        in_memory: int = IN_MEMORY,
        clock: Callable[[], float] = time.monotonic,
        counters: Counters | None = None,
    ) -> None:
        self.limit = limit
        self._counters = counters or Counters()
        self._in_memory = in_memory
        self._clock = clock
        self._kept = WeakValueDictionary[int, EncodedFile]()
        self.memory = 0
        """Number of bytes of the files in memory."""

    async def keep(self, data: bytes) -> EncodedFile:
        """Return the bytes as a file; it is forgotten here when nothing refers to it any more.

        Raises Overloaded if it does not fit beside files that are being read.
        """
        file = self.shared(data)
        if len(data) > SMALL and self.memory > self._in_memory:
            try:
                file.move(await asyncio.to_thread(_written, data))
            except OSError as error:  # the disk is full: the file stays in memory
                log.warning("an answer cannot be moved to disk: %s", error)
        return file

    def shared(self, data: bytes) -> EncodedFile:
        """Return bytes that others hold too as a file in memory; raises as `keep` does."""
        if len(data) <= SMALL:
            return EncodedFile(data)
        self._make_room(len(data))
        file = EncodedFile(data, self)
        self.was_read(file)
        self._counters.add(Total.UNREAD, file.size)
        self.memory += file.size
        return file

    def was_read(self, file: EncodedFile) -> None:
        """Note that a file is made or read now."""
        self._kept.pop(id(file), None)
        self._kept[id(file)] = file  # behind all others
        file.read_at = self._clock()

    def forget(self, file: EncodedFile) -> None:
        """Count the bytes of a file no more, before they are let go of."""
        self._kept.pop(id(file), None)
        self._counters.add(Total.UNREAD, -file.size)
        if file.in_memory:
            self.memory -= file.size

    def _make_room(self, size: int) -> None:
        idle_since = self._clock() - IDLE
        for file in list(self._kept.values()):
            if self._counters.total(Total.UNREAD) + size <= self.limit or file.read_at > idle_since:
                break
            file.drop()
        if (unread := self._counters.total(Total.UNREAD)) + size > self.limit:
            raise Overloaded(
                f"answers of {unread} bytes wait to be read by their clients; the limit is "
                f"{self.limit} (DARKROOM_MAX_BYTES_IN_FLIGHT); try again later",
                retry_after=IDLE,
                reason="unsent_bytes",
            )


def _written(data: bytes) -> BinaryIO:
    """Return an unnamed temporary file that holds the data."""
    with ExitStack() as opened:
        file = opened.enter_context(tempfile.TemporaryFile("w+b"))
        file.write(data)
        file.flush()
        opened.pop_all()
        return file
