"""Places for open archives, given to the clients that wait for one in turn."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """Semaphore of `total` places, of which one client holds at most `per_client`.

    A free place goes to the waiting client that holds the fewest; among equals, clients take turns.
    It belongs to one event loop.
    """

    def __init__(self, total: int, per_client: int) -> None:
        self._free = total
        self._per_client = per_client
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        """Return the number of clients that hold a place or wait for one."""
        return len(self._held.keys() | self._waiting.keys())

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it for `client` while the block runs."""
        await self._take(client)
        try:
            yield
        finally:
            self._give_back(client)

    async def _take(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # a place was given in the same moment
                self._give_back(client)
            self._forget_cancelled(client)
            raise

    def _give_back(self, client: str) -> None:
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        self._serve()

    def _serve(self) -> None:
        """Give free places to those that wait."""
        while self._free and (client := self._next()) is not None:
            queue = self._waiting.pop(client)
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue  # behind the other clients
            if not turn.done():
                self._free -= 1
                self._held[client] += 1
                turn.set_result(None)

    def _forget_cancelled(self, client: str) -> None:
        queue = deque(turn for turn in self._waiting.pop(client, ()) if not turn.done())
        if queue:
            self._waiting[client] = queue

    def _next(self) -> str | None:
        """Return the client that is given the next place, None if there is none."""
        allowed = [each for each in self._waiting if self._held[each] < self._per_client]
        return min(allowed, key=self._held.__getitem__, default=None)
