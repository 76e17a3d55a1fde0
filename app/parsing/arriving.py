"""Collect a JSON body in memory that goes back to the system, within a bound for all of them.

Images in other bodies move to disk while they come. JSON is parsed whole, so that three bodies of
250 MB would be 750 MB of memory: from `room` on, all but one large body are refused.
"""

import mmap
from dataclasses import dataclass

from models.domain.errors import Overloaded

SMALL = 1 << 20
"""Largest body, in bytes, that is small: it lies in memory of the C library's allocator, which
keeps what it leaves."""

ROOM = 96 << 20
"""Bytes of all larger bodies of one process. One body alone may be larger, and counts as the whole
room; those of at most a sixteenth of it have as much room again: it never keeps them out."""

TINY = 1 << 16
"""Largest body, in bytes, that finds room when all others fill their own."""

Text = bytes | bytearray | mmap.mmap
"""The type of a collected body; `mmap` lacks most methods of bytes."""


@dataclass(slots=True)
class JsonRoom:
    """The memory of the JSON bodies of one process. It belongs to one event loop.

    `bodies` counts the large ones, `held` their bytes, and `small` the bytes of the others. They
    hold at most twice the limit together, and an eighth of it more that is for tiny ones alone.
    """

    limit: int = ROOM
    bodies: int = 0
    held: int = 0
    small: int = 0

    def resize(self, old: int, new: int) -> None:
        """Count `new` bytes of a body in place of `old`; raise Overloaded, which counts `old`."""
        self._count(old, -1)
        if new > old and self._lacks(old, new):
            self._count(old, 1)
            raise Overloaded(
                f"JSON bodies hold {self.held + self.small} bytes of memory, with a limit of "
                f"{self.limit} for large ones; try again later, or send the images as "
                "multipart/form-data",
                retry_after=1.0,
                reason="json_bytes",
            )
        self._count(new, 1)

    def _count(self, size: int, sign: int) -> None:
        if size > SMALL:
            self.bodies += sign
            self.held += sign * min(size, self.limit)
        else:
            self.small += sign * size

    def _lacks(self, old: int, new: int) -> bool:
        """Return whether a body of `old` bytes, which are not counted now, may not have `new`."""
        size = min(new, self.limit)
        if size == min(old, self.limit):
            return False
        most = self.limit if new > self.limit // 16 else 2 * self.limit
        if new > SMALL and self.bodies and self.held + size > most:
            return True
        most = 2 * self.limit + (self.limit // 8 if new <= TINY else 0)
        return self.held + self.small + size > most


class RoomShare:
    """The memory of a body whose size goes up and down; leaving its context frees it."""

    def __init__(self, room: JsonRoom) -> None:
        self._room = room
        self._held = 0

    def resize(self, size: int) -> None:
        """Count `size` bytes in place of those before; raise Overloaded."""
        self._room.resize(self._held, size)
        self._held = size

    def __enter__(self) -> "RoomShare":
        return self

    def __exit__(self, *exception: object) -> None:
        self.resize(0)


class ArrivingJson:
    """One body; leaving its context frees the memory that it counted."""

    def __init__(self, room: JsonRoom) -> None:
        self._share = RoomShare(room)
        self._small = bytearray()
        self._large: mmap.mmap | None = None
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk; raise Overloaded."""
        start, size = self._size, self._size + len(chunk)
        self._share.resize(size)
        self._size = size
        if size <= SMALL:
            self._small += chunk
            return
        self._grown(size)[start:size] = chunk

    def text(self) -> Text:
        """Return the written bytes and end the writing; they stay valid after the block."""
        if self._large is None:
            return self._small
        self._large.resize(self._size)
        return self._large

    def _grown(self, size: int) -> mmap.mmap:
        """Return the memory of a large body with at least `size` bytes."""
        if self._large is None:
            private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._large = mmap.mmap(-1, 4 * SMALL, flags=private)
            self._large[: len(self._small)] = self._small
            self._small = bytearray()
        while size > len(self._large):
            self._large.resize(2 * len(self._large))  # pages that nothing was written to cost none
        return self._large

    def __enter__(self) -> "ArrivingJson":
        return self

    def __exit__(self, *exception: object) -> None:
        self._share.resize(0)
        self._size = 0
        self._large = None
