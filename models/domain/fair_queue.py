"""Queue in which requests wait for something limited, fair to the clients that they come from.

Start-time fair queueing (Goyal, Vin and Cheng, 1996, https://doi.org/10.1145/248157.248171): each
client has the virtual time at which its next request starts if the client has a fair part, and the
client with the smallest one goes next. So a client with one request waits for what is under way,
and not for a flood of another client. The requests of one client keep their order, and requests
that all have the same client are served first come, first served.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Generic, TypeVar

Request = TypeVar("Request")
Grant = TypeVar("Grant")

FEW = 64
"""Clients that are remembered although none of their requests waits."""


class Lack(Enum):
    """Why a request is given nothing now."""

    ALL = auto()
    """Nothing is left for any client that waits behind it."""
    OWN = auto()
    """Its client may have no more; other clients are tried."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Request, Grant]):
    request: Request
    cost: float
    turn: "asyncio.Future[Grant]"


class _Client(Generic[Request, Grant]):
    """The requests of one client that wait, and the virtual time at which the first one starts."""

    __slots__ = ("queued", "requests", "start")

    def __init__(self) -> None:
        self.start = 0.0
        self.queued = False
        self.requests: deque[_Waiting[Request, Grant]] = deque()


class FairQueue(Generic[Request, Grant]):
    """Queue of requests; it belongs to one event loop.

    What is given, and how much of it there is, belongs to the caller. `attempt` takes a request and
    the time since which nothing was given although some request waits, in nanoseconds of the
    monotonic clock. It returns a grant or a `Lack`. `give_back` takes back a grant that its request
    no longer wants. `poll` are the seconds after which a queue looks again for what was given back
    without a `wake`; 0 never looks.
    """

    def __init__(
        self,
        attempt: Callable[[Request, int], Grant | Lack],
        give_back: Callable[[Grant], None],
        poll: float = 0.0,
    ) -> None:
        self._attempt = attempt
        self._give_back = give_back
        self._poll = poll
        self._timer: asyncio.TimerHandle | None = None
        self._clients: dict[Hashable, _Client[Request, Grant]] = {}
        self._heap: list[tuple[float, int, _Client[Request, Grant]]] = []
        self._numbers = count()
        self._virtual = 0.0
        self._since = 0
        self._size = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return self._size

    def take_now(self, client: Hashable, request: Request) -> Grant | None:
        """Return what is given for a request without waiting; None if it has to wait.

        This overtakes nothing that could be given to: `wake` has tried all that wait.
        """
        if self._size and (found := self._clients.get(client)) is not None and found.requests:
            return None
        given = self._attempt(request, time.monotonic_ns())
        return None if isinstance(given, Lack) else given

    async def take(self, client: Hashable, request: Request, cost: float = 1.0) -> Grant:
        """Return what is given for a request, which uses `cost` of the part of its client.

        A request that is cancelled keeps nothing, even if it was given something at that moment.
        """
        if (given := self.take_now(client, request)) is not None:
            return given
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = _Client()
        turn: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(request, cost, turn)
        found.requests.append(waiting)
        if not self._size:
            self._since = time.monotonic_ns()
        self._size += 1
        if not found.queued:
            found.start = max(self._virtual, found.start)
            self._push(found)
        self._look_again()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    found.requests.remove(waiting)
                self._size -= 1
            elif turn.exception() is None:
                self._give_back(turn.result())
            self.wake()  # those behind it may fit where it did not
            raise

    def wake(self) -> None:
        """Give to requests as long as one of them fits.

        To be called when something was given back, or when more may be given than before.
        """
        passed_over: list[tuple[float, int, _Client[Request, Grant]]] = []
        while self._heap:
            client = self._heap[0][2]
            while client.requests and client.requests[0].turn.done():
                client.requests.popleft()  # its task was cancelled and has not run since
            if not client.requests:
                client.queued = False
                heapq.heappop(self._heap)
                continue
            first = client.requests[0]
            given = self._attempt(first.request, self._since)
            if given is Lack.ALL:
                break
            entry = heapq.heappop(self._heap)
            if given is Lack.OWN:
                passed_over.append(entry)
                continue
            assert not isinstance(given, Lack)
            first.turn.set_result(given)
            client.requests.popleft()
            self._size -= 1
            self._since = time.monotonic_ns()
            self._virtual = max(self._virtual, client.start)
            client.start += first.cost
            self._push(client)
        for entry in passed_over:
            heapq.heappush(self._heap, entry)
        if not self._heap:
            self._clients.clear()  # memory follows the present load, not the past
            self._virtual = 0.0
        elif len(self._clients) > 2 * len(self._heap) + FEW:
            late = self._virtual
            kept = {
                k: each for k, each in self._clients.items() if each.queued or each.start > late
            }
            self._clients = kept
        self._look_again()

    def refuse(self, error: Exception) -> None:
        """Raise an error in every request that waits."""
        for client in self._clients.values():
            for each in client.requests:
                if not each.turn.done():
                    each.turn.set_exception(error)
                    self._size -= 1
        self.wake()

    def _push(self, client: _Client[Request, Grant]) -> None:
        client.queued = True
        heapq.heappush(self._heap, (client.start, next(self._numbers), client))

    def _look_again(self) -> None:
        if self._poll and self._size and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._poll, self._looked)

    def _looked(self) -> None:
        self._timer = None
        self.wake()
