"""The slots for images in work, shared fairly by clients, and by the jobs of each client."""

import asyncio
from collections import Counter, deque


class SharedSlots:
    """At most `most` images in work. A slot that is free goes to the client that has the fewest,
    and of its jobs to the one that has the fewest.

    So a job whose origin is slow keeps its share and no more. If jobs took slots by turns, it would
    soon hold all of them, because it returns its slots late.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._clients, self._jobs = Counter[str](), Counter[str]()
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[None]]] = {}

    async def take(self, client: str, job: str) -> None:
        """Wait for a slot for an image of a job of a client."""
        if self._free:  # then none waits
            self._count(client, job, 1)
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((client, job), deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it was given meanwhile
                self.give(client, job)
            raise

    def give(self, client: str, job: str) -> None:
        """Give a slot back."""
        self._count(client, job, -1)
        while self._free and self._waiting:
            key = min(self._waiting, key=self._held)
            line = self._waiting[key]
            given = line.popleft()
            if not line:
                del self._waiting[key]
            if not given.done():  # else its task was cancelled
                self._count(*key, 1)
                given.set_result(None)

    def _held(self, key: tuple[str, str]) -> tuple[int, int]:
        client, job = key
        return self._clients[client], self._jobs[job]

    def _count(self, client: str, job: str, change: int) -> None:
        self._free -= change
        for counter, name in ((self._clients, client), (self._jobs, job)):
            counter[name] += change
            if not counter[name]:
                del counter[name]
