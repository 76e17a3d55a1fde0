"""Collect a JSON body in memory that goes back to the system, within a bound for all of them.

Images in other bodies move to disk while they come. JSON is parsed whole, so that three bodies of
250 MB would be 750 MB of memory: from `room` on, all but one large body are refused. One client
leaves memory to the others, or 200 slow bodies of 1 MB would keep out all JSON.
"""

import mmap
from dataclasses import dataclass, field

from models.domain.errors import Overloaded

SMALL = 1 << 20
"""Largest body, in bytes, that is small: it lies in memory of the C library's allocator, which
keeps what it leaves."""

ROOM = 88 << 20
"""Bytes of all larger bodies of one process. One body alone may be larger, and counts as the whole
room; those of at most a sixteenth of it have as much room again: it never keeps them out."""

TINY = 1 << 16
"""Largest body, in bytes, that finds room when all others fill their own."""

PART = 3
"""The bodies of a client that has several hold at most this many times the bytes that stay free."""

Text = bytes | bytearray | mmap.mmap
"""The type of a collected body; `mmap` lacks most methods of bytes."""


@dataclass(slots=True)
class JsonRoom:
    """The memory of the JSON bodies of one process. It belongs to one event loop.

    `bodies` counts the large ones, `held` their bytes, and `small` the bytes of the others. They
    hold at most twice the limit together, and an eighth of it more that is for tiny ones alone.
    `clients` has the bytes of each client. Its first body may take what is free; with more of them
    it has at most `PART` times as much as stays free.
    """

    limit: int = ROOM
    bodies: int = 0
    held: int = 0
    small: int = 0
    clients: dict[str, int] = field(default_factory=dict)

    def of(self, client: str) -> "ClientRoom":
        """Return the room as the bodies of one client count in it."""
        return ClientRoom(self, client)

    def resize(self, client: str, old: int, new: int) -> None:
        """Count `new` bytes of a body in place of `old`; raise Overloaded, which counts `old`."""
        self._count(client, old, -1)
        if new > old and self._lacks(client, old, new):
            self._count(client, old, 1)
            own = self.clients.get(client, 0)
            raise Overloaded(
                f"JSON bodies hold {self.held + self.small} bytes of memory, {own} of them yours, "
                f"with a limit of {self.limit} for large ones, and of {PART} times as much as "
                "stays free for one client; try again later, or send the images as "
                "multipart/form-data",
                retry_after=1.0,
                reason="json_bytes",
            )
        self._count(client, new, 1)

    def _count(self, client: str, size: int, sign: int) -> None:
        counted = sign * min(size, self.limit)
        if size > SMALL:
            self.bodies += sign
            self.held += counted
        else:
            self.small += counted
        if held := self.clients.get(client, 0) + counted:
            self.clients[client] = held
        else:
            self.clients.pop(client, None)

    def _lacks(self, client: str, old: int, new: int) -> bool:
        """Return whether a body of `old` bytes, which are not counted now, may not have `new`."""
        size, others = min(new, self.limit), self.clients.get(client, 0)
        if size == min(old, self.limit):
            return False
        most = self.limit if new > self.limit // 16 else 2 * self.limit
        if new > SMALL and self.bodies and _too_much(size, others, most - self.held):
            return True
        most = 2 * self.limit + (self.limit // 8 if new <= TINY else 0)
        return _too_much(size, others, most - self.held - self.small)


def _too_much(size: int, others: int, free: int) -> bool:
    """Return whether a body of `size` bytes is too large for what is free, or, beside `others` of
    its client, leaves too little.
    """
    left = free - size
    return left < 0 or (others > 0 and others + size > PART * left)


@dataclass(frozen=True, slots=True)
class ClientRoom:
    """The memory of JSON bodies, of which those of one client take a share."""

    room: JsonRoom
    client: str

    def resize(self, old: int, new: int) -> None:
        """Count `new` bytes of a body in place of `old`; raise Overloaded, which counts `old`."""
        self.room.resize(self.client, old, new)


class RoomShare:
    """The memory of a body whose size goes up and down; leaving its context frees it."""

    def __init__(self, room: ClientRoom) -> None:
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

    def __init__(self, room: ClientRoom) -> None:
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
