"""Queue and semaphore that are fair to clients: requests wait until something limited is free.

What is given, and how much of it there is, belongs to the caller, as with `WaitQueue` of
`models/domain`, which makes no difference between clients. `app/fetch/keyed_limiter.py`
uses the queue, and `FairSemaphore` limits what clients share in other folders.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto


class Lack(Enum):
    """What a request lacks. It tells which other requests lack it too, and need not be tried."""

    ALL = auto()
    """Nothing is left for any client."""
    CLIENT = auto()
    """Its client has as much as it may have, for any key."""
    KEY = auto()
    """Nothing is left for its key, whichever client asks."""


Attempt = Callable[[str, str, int], Lack | None]
"""Takes what a request of a client for a key asks for, and returns None; or returns what it lacks.

The number is the time since which its client waits and is given nothing, in nanoseconds of the
monotonic clock.
"""


def _ignored() -> None:
    """Do nothing when requests begin or cease to wait."""


@dataclass(slots=True)
class _Waiting:
    """The requests of one client that wait, by key, and since when it was given nothing."""

    since: int
    lines: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict)


class FairQueue:
    """Queue of requests of clients, each of them for a key; it belongs to one event loop.

    What becomes free goes to the client for which `held` returns the least; among equals to the one
    that has waited longest since it was given something, so they take turns. So do the keys of a
    client, and the requests of a client for one key are served in their order.

    `give_back` takes back what a cancelled request was given. `woken` is called when requests begin
    to wait, and after each attempt to give to them.
    """

    def __init__(
        self,
        attempt: Attempt,
        give_back: Callable[[str, str], None],
        held: Callable[[str], int],
        woken: Callable[[], None] = _ignored,
    ) -> None:
        self._attempt = attempt
        self._give_back = give_back
        self._held = held
        self._woken = woken
        # Those that were given something stand behind the others; so do the keys of a client.
        self._clients: dict[str, _Waiting] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return self._size

    @property
    def clients(self) -> set[str]:
        """Return the clients that have a request that waits."""
        return set(self._clients)

    def take_now(self, client: str, key: str = "") -> bool:
        """Return whether something was given for a request without waiting.

        This overtakes nothing that could be given to: `wake` has tried all that wait.
        """
        waiting = self._clients.get(client)
        if waiting is not None and key in waiting.lines:
            return False
        return self._attempt(client, key, time.monotonic_ns()) is None

    async def take(self, client: str, key: str = "") -> None:
        """Wait until something is given for a request.

        A request that is cancelled keeps nothing, even if it was given something at that moment.
        """
        if self.take_now(client, key):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._clients.setdefault(client, _Waiting(time.monotonic_ns()))
        waiting.lines.setdefault(key, deque()).append(turn)
        self._size += 1
        self._woken()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(client, key, turn)
                self._woken()
            else:
                self._give_back(client, key)
                self.wake()
            raise

    def wake(self) -> None:
        """Give to requests as long as one of them fits.

        To be called when something was given back, or when more may be given than before.
        """
        while self._clients and self._gives_one():
            pass
        self._woken()

    def _gives_one(self) -> bool:
        """Return whether a request left the queue; each key that has nothing left is tried once."""
        exhausted = set[str]()
        for client in self._in_turn():
            waiting = self._clients[client]
            for key in waiting.lines:
                if key in exhausted:
                    continue
                lack = self._attempt(client, key, waiting.since)
                if lack is None:
                    self._give(client, key)
                    return True
                if lack is Lack.ALL:
                    return False
                if lack is Lack.CLIENT:
                    break
                exhausted.add(key)
        return False

    def _in_turn(self) -> Iterator[str]:
        """Yield the clients that wait, in the order in which they are served.

        The first one is found at once where a thousand clients wait that hold nothing.
        """
        holding = list[str]()
        for client in self._clients:
            if self._held(client):
                holding.append(client)
            else:
                yield client
        yield from sorted(holding, key=self._held)  # a stable sort: equals take turns

    def _give(self, client: str, key: str) -> None:
        """Give what was taken to the first request of a client for a key."""
        waiting = self._clients[client]
        turn = waiting.lines[key][0]
        self._leave(client, key, turn)
        if turn.done():  # it was cancelled, and its task has not run since to leave the queue
            self._give_back(client, key)
            return
        turn.set_result(None)
        if key in waiting.lines:
            waiting.lines[key] = waiting.lines.pop(key)
        if client in self._clients:
            waiting.since = time.monotonic_ns()
            self._clients[client] = self._clients.pop(client)

    def _leave(self, client: str, key: str, turn: asyncio.Future[None]) -> None:
        """Remove a request, unless it has left already."""
        waiting = self._clients.get(client)
        if waiting is None or turn not in waiting.lines.get(key, ()):
            return
        waiting.lines[key].remove(turn)
        self._size -= 1
        if not waiting.lines[key]:
            del waiting.lines[key]
        if not waiting.lines:
            del self._clients[client]


May = Callable[[int, int], bool]
"""Returns whether a client may take one more turn: its arguments are the number of turns that the
client holds, and the number of turns that are free.

It refuses a client with more turns, or while fewer are free, whenever it refuses another one.
"""


def at_most(most: int) -> May:
    """Let a client hold at most `most` turns."""
    return lambda held, _free: held < most


def times_free(times: int) -> May:
    """Let a client hold at most `times` as many turns as stay free, and one in any case.

    With `times` = 1 it may have half of all if it is alone, then another one half of the rest. So
    it takes several clients with many turns each before one without finds none (dynamic threshold,
    Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262).
    """
    return lambda held, free: held == 0 or held + 1 <= times * (free - 1)


class FairSemaphore:
    """Semaphore of `total` turns, of which each client takes as many as `may` allows, in an order
    that is fair to clients (`FairQueue`). It belongs to one event loop.
    """

    def __init__(self, total: int, may: May) -> None:
        self._total = self._free = total
        self._may = may
        self._held = Counter[str]()
        self._queue = FairQueue(self._attempt, self._count_back, self._held.__getitem__)

    def __len__(self) -> int:
        """Return the number of clients that hold a turn or wait for one."""
        return len(self._held.keys() | self._queue.clients)

    @property
    def waiting(self) -> int:
        """Return how many callers wait for a turn."""
        return len(self._queue)

    def set_total(self, total: int) -> None:
        """Change the number of turns from now on; those that are taken already are kept."""
        self._free += total - self._total
        self._total = total
        self._queue.wake()

    def take_now(self, client: str) -> bool:
        """Return whether a turn was taken, which is not waited for."""
        return self._queue.take_now(client)

    async def take(self, client: str) -> None:
        """Wait for a turn, and take it. A caller that is cancelled keeps none."""
        await self._queue.take(client)

    def give_back(self, client: str) -> None:
        """Give a turn back."""
        self._count_back(client)
        self._queue.wake()

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for `client` while the block runs."""
        await self.take(client)
        try:
            yield
        finally:
            self.give_back(client)

    def _attempt(self, client: str, _key: str, _since: int) -> Lack | None:
        held = self._held[client]
        if self._free <= 0 or not self._may(held, self._free):
            return Lack.ALL  # clients that hold more, which come later, may take none either
        self._free -= 1
        self._held[client] = held + 1
        return None

    def _count_back(self, client: str, _key: str = "") -> None:
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
