"""Bound the messages that arrive at the same time, because gRPC holds each of them whole.

While a message is not read, flow control keeps all but its first 64 kB with the client. A slot is
the right to read one, so the slots times the largest message, and times the copies that there are
of it, bound the memory of what arrives.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MEMORY = 1 << 27
"""Bytes of all messages that arrive at the same time in one process, with their copies, where slots
allow it. What is computed meanwhile needs the rest of the 300 MB that an attacker may take. Eight
messages at a time of 0.1 to 6 MB came at no lower rate than 32."""

COPIES = 2
"""Copies of a message: grpcio's, and the bytes that are made of it. The allocator keeps the memory
of both, even where one of a message is freed before the other is made."""

FEWEST = 2
"""Slots that there are however large a message may be."""


@dataclass(slots=True)
class _Client:
    """The slots that one client may hold, and how many calls of it wait for or hold one."""

    slots: asyncio.Semaphore
    users: int = field(default=0)


class MessageSlots:
    """Slots for messages of at most `largest` bytes; one client holds half of them at most."""

    def __init__(self, largest: int, memory: int = MEMORY) -> None:
        self.total = max(FEWEST, memory // (COPIES * largest))
        self._all = asyncio.Semaphore(self.total)
        self._clients: dict[str, _Client] = {}

    @asynccontextmanager
    async def taken(self, client: str) -> AsyncIterator[None]:
        """Hold a slot while the block runs; a client waits for its own share first."""
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = _Client(asyncio.Semaphore(self.total // 2))
        found.users += 1
        try:
            async with found.slots, self._all:
                yield
        finally:
            found.users -= 1
            if not found.users:
                del self._clients[client]
