"""Begin connections that have sent something: some in each turn of the event loop.

To begin or to refuse a request takes ten times as long as to accept its connection. Requests
without a body go first: a health check does not wait for a thousand uploads that came before it.
"""

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable

from app.connections.entrance import Ticket

BEGUN_AT_ONCE = 32
"""Connections that are begun in one turn, so that requests go on beside them."""

REFUSAL = 0.2
"""Part of the time of beginning that a refusal takes, so five times as many fit into a turn."""

FIRST = (b"G", b"H")
"""First bytes of requests that are begun before others: GET and HEAD."""

OTHERS = 4
"""Of this many connections one is of another request, or a flood of GETs would keep all uploads
from being begun for as long as it lasts."""

Begin = Callable[[socket.socket, Ticket, Callable[[], None], bytes], bool]
"""Begins or refuses a connection, and returns whether it began; the function gives it a protocol,
and the bytes are what it began with when it came."""

_Arrival = tuple[socket.socket, Ticket, Callable[[], None], bytes]


class Arrivals:
    """The connections that wait to be begun, without a phase or a timeout, for milliseconds."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._bodiless: deque[_Arrival] = deque()
        self._others: deque[_Arrival] = deque()
        self._begun = 0.0
        """Connections that were begun in this turn of the event loop; refusals count as parts."""
        self._turn: asyncio.Handle | None = None
        """The next turn, if there is something to do in it."""

    @property
    def waiting(self) -> int:
        """Return how many connections wait."""
        return len(self._bodiless) + len(self._others)

    def add(
        self, data: bytes, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]
    ) -> None:
        """Begin or refuse a connection that has sent `data` or more, now or in its turn."""
        queue = self._bodiless if data.startswith(FIRST) else self._others
        if self._begun < BEGUN_AT_ONCE and not (queue or self._bodiless):
            self._handle(connection, ticket, begin, data)
        else:
            queue.append((connection, ticket, begin, data))
        if self._turn is None:
            self._turn = self._loop.call_soon(self._next_turn)

    def end(self) -> None:
        """Close the connections that wait for their turn."""
        if self._turn is not None:
            self._turn.cancel()
        for queue in (self._bodiless, self._others):
            while queue:
                connection, ticket, *_ = queue.popleft()
                ticket.leave()
                connection.close()

    def _next_turn(self) -> None:
        self._turn, self._begun = None, 0.0
        for number in itertools.count(1):
            first, second = self._bodiless, self._others
            if number % OTHERS == 0:
                first, second = second, first
            if self._begun >= BEGUN_AT_ONCE or not (queue := first or second):
                break
            self._handle(*queue.popleft())
        if self._begun:
            self._turn = self._loop.call_soon(self._next_turn)

    def _handle(
        self, connection: socket.socket, ticket: Ticket, begin: Callable[[], None], data: bytes
    ) -> None:
        self._begun += 1 if self._begin(connection, ticket, begin, data) else REFUSAL
