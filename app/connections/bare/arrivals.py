"""Begin connections that have sent something: some in each turn of the event loop.

To begin or to refuse a request takes ten times as long as to accept its connection. Health checks
go first, then other requests without a body: neither waits for a thousand uploads that came before.
"""

import socket
from collections.abc import Callable

from app.connections.entrance import Ticket
from app.connections.health_checks import begins_check
from app.connections.in_turns import InTurns

BEGUN_AT_ONCE = 32
"""Connections that are begun in one turn, so that requests go on beside them."""

REFUSAL = 0.2
"""Part of the time of beginning that a refusal takes, so five times as many fit into a turn."""

BODILESS = (b"G", b"H")
"""First bytes of requests that are begun before others: GET and HEAD."""

Begin = Callable[[socket.socket, Ticket, Callable[[], None], bytes], bool]
"""Begins or refuses a connection, and returns whether it began; the function gives it a protocol,
and the bytes are what it began with when it came."""

_Arrival = tuple[socket.socket, Ticket, Callable[[], None], bytes]


class Arrivals:
    """The connections that wait to be begun, without a phase or a timeout, for milliseconds."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._turns = InTurns(self._handle, BEGUN_AT_ONCE, ranks=3)

    @property
    def waiting(self) -> int:
        """Return how many connections wait."""
        return self._turns.waiting

    def add(
        self, data: bytes, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]
    ) -> None:
        """Begin or refuse a connection that has sent `data` or more, now or in its turn."""
        rank = 0 if begins_check(data) else 1 if data.startswith(BODILESS) else 2
        self._turns.add((connection, ticket, begin, data), rank)

    def end(self) -> None:
        """Close the connections that wait for their turn."""
        for connection, ticket, *_ in self._turns.end():
            ticket.leave()
            connection.close()

    def _handle(self, arrival: _Arrival) -> float:
        return 1 if self._begin(*arrival) else REFUSAL
