"""Collect a JSON body in memory that goes back to the system, within a bound for all of them.

Images in other bodies move to disk while they come. JSON is parsed whole, so that three bodies of
250 MB would be 750 MB of memory: from `room` on, all but one large body are refused.
"""

import mmap
from dataclasses import dataclass

from models.domain.errors import Overloaded

SMALL = 1 << 20
"""Bytes of a body that is not counted; the C library's allocator keeps what such ones leave."""

ROOM = 96 << 20
"""Bytes of all larger bodies of one process. One body alone may be larger, and counts as the whole
room; those of at most a sixteenth of it have as much room again: it never keeps them out."""

Text = bytes | bytearray | mmap.mmap
"""The type of a collected body; `mmap` lacks most methods of bytes."""


@dataclass(slots=True)
class JsonRoom:
    """The memory of the large JSON bodies of one process. It belongs to one event loop."""

    limit: int = ROOM
    bodies: int = 0
    held: int = 0

    def take(self, own: int, more: int) -> None:
        """Count `more` bytes for a body that has `own` bytes already; raise Overloaded."""
        added = min(own + more, self.limit) - min(own, self.limit)
        most = self.limit if own + more > self.limit // 16 else 2 * self.limit
        if added and self.bodies > 1 and self.held + added > most:
            raise Overloaded(
                f"{self.bodies} large JSON bodies hold {self.held} bytes, of at most {self.limit}; "
                "try again later, or send the images as multipart/form-data",
                retry_after=1.0,
                reason="json_bytes",
            )
        self.held += added

    def give_back(self, own: int) -> None:
        """Free the `own` bytes of a body that has ended."""
        self.held -= min(own, self.limit)


class ArrivingJson:
    """One body; leaving its context frees the memory that it counted."""

    def __init__(self, room: JsonRoom) -> None:
        self._room = room
        self._small = bytearray()
        self._large: mmap.mmap | None = None
        self._size = self._held = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk; raise Overloaded."""
        start, self._size = self._size, self._size + len(chunk)
        if self._large is None and self._size <= SMALL:
            self._small += chunk
            return
        self._reserve(self._size)
        assert self._large is not None
        self._large[start : self._size] = chunk

    def text(self) -> Text:
        """Return the written bytes and end the writing; they stay valid after the block."""
        if self._large is None:
            return self._small
        self._large.resize(self._size)
        return self._large

    def _reserve(self, size: int) -> None:
        if self._large is None:
            self._room.bodies += 1
            private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._take(size)
            self._large = mmap.mmap(-1, 4 * SMALL, flags=private)
            self._large[: len(self._small)] = self._small
            self._small = bytearray()
        else:
            self._take(size - self._held)
        while size > len(self._large):
            self._large.resize(2 * len(self._large))  # pages that nothing was written to cost none

    def _take(self, n_bytes: int) -> None:
        self._room.take(self._held, n_bytes)
        self._held += n_bytes

    def __enter__(self) -> "ArrivingJson":
        return self

    def __exit__(self, *exception: object) -> None:
        self._room.give_back(self._held)
        self._room.bodies -= self._size > SMALL
        self._held = self._size = 0
        self._large = None


class RoomShare:
    """The memory that a body takes whose size goes up and down; leaving its context frees it."""

    def __init__(self, room: JsonRoom) -> None:
        self._room = room
        self._held = 0

    def resize(self, size: int) -> None:
        """Count `size` bytes in place of those before, none of at most SMALL; raise Overloaded."""
        size = size if size > SMALL else 0
        if size and not self._held:
            self._room.bodies += 1
        if size > self._held:
            try:
                self._room.take(self._held, size - self._held)
            except Overloaded:
                self._room.bodies -= not self._held
                raise
        else:
            self._free(size)
        self._held = size

    def _free(self, size: int) -> None:
        limit = self._room.limit
        self._room.held -= min(self._held, limit) - min(size, limit)
        self._room.bodies -= bool(self._held) and not size

    def __enter__(self) -> "RoomShare":
        return self

    def __exit__(self, *exception: object) -> None:
        self._free(0)
        self._held = 0
