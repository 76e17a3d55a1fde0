"""Hold connections without a transport and a protocol: silent ones, and some that were refused.

To make a protocol, a transport and a parser takes as long as to accept a connection. Most of the
connections of a flood never send a byte, so one selector watches them all until the first byte of
one of them arrives. That one is then begun, whatever the number of silent ones before it.

A connection whose request is refused under overload (`http1/bare_refusals.py`) gets no transport.
What it still sends is discarded (`discarded_connection.py`); then it may be silent again.
"""

import asyncio
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.connections.bare.arrivals import Arrivals
from app.connections.bare.discarded_connection import DiscardedConnection, Watched
from app.connections.bare.peeking import FIRST_LOOK, LONGEST_HEAD, sent
from app.connections.bare.resting import Resting
from app.connections.entrance import Ticket
from app.connections.guard import Guard
from app.connections.health_checks import PEEKED
from app.connections.phases import Phase

SEEN_AT_ONCE = 256
"""Silent connections that are looked at in one turn."""


class Member(Protocol):
    """A connection as the server counts it and ends it when the server shuts down."""

    def shutdown(self) -> None:
        """End as soon as no answer is lost by that."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What is left of a connection whose request was refused on its bare socket.

    `keeps`: the client may send another request. `unread`: the bytes of the request that have not
    been read; if no other request may follow, at least 1 where the client may still be sending.
    """

    keeps: bool
    unread: int


Refuse = Callable[[socket.socket, str, bytes], Refused | None]
"""Answers the request in a socket's buffer if it is refused, else returns None. The text is the
client's address; the bytes are the beginning of the request, at most `LONGEST_HEAD`."""


def refuse_none(_connection: socket.socket, _host: str, _data: bytes) -> Refused | None:
    """Return None: every connection begins."""
    return None


class SilentConnection:
    """One connection whose client is silent, until it is begun or closed.

    Its phase is FRESH before its first request and ONCE after one that was refused.
    """

    __slots__ = ("_all", "begin", "client_key", "connection", "phase", "ticket")

    def __init__(
        self,
        all_: "SilentConnections",
        connection: socket.socket,
        ticket: Ticket,
        begin: Callable[[], None],
        phase: Phase = Phase.FRESH,
    ) -> None:
        self._all = all_
        self.connection = connection
        self.ticket = ticket
        self.begin = begin
        self.client_key = ticket.client
        self.phase = phase

    def readable(self) -> None:
        """Begin, or close if the client has left."""
        first = sent(self.connection, PEEKED)
        if first:
            self._all.remove(self)
            self._all.arrivals.add(first, self.connection, self.ticket, self.begin)
        elif first is not None:
            self._all.close(self)

    def expire(self, _phase: Phase) -> None:
        """Close, because the client has been silent for too long."""
        self._all.close(self, "idle")

    def evict(self) -> None:
        """Close to make room for another connection."""
        self._all.close(self, "evicted")

    def sends(self) -> bool:
        """Return whether the first byte has come, but its turn has not."""
        return bool(sent(self.connection, 1))

    def shutdown(self) -> None:
        """Close, because the server shuts down."""
        self._all.close(self)

    def unsent(self) -> int:
        """Return 0: nothing is written before the first byte has come."""
        return 0

    def stalled(self) -> None:
        """Never called: nothing is written."""


class SilentConnections:
    """The connections of one listening socket that have no protocol.

    They are members of `connections`, the server's set of all its connections. `refuse` is asked
    before a connection begins.
    """

    def __init__(
        self, guard: Guard, connections: set[Member], refuse: Refuse = refuse_none
    ) -> None:
        self._guard = guard
        self._connections = connections
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self.arrivals = Arrivals(self._begin)
        self._resting = Resting(self._resume)  # these are not in the selector
        self._selector = selectors.DefaultSelector()
        # An epoll descriptor is itself readable when one of its members is, so the event loop
        # watches thousands of silent connections as one.
        self._loop.add_reader(self._selector, self._look)

    def enter(self, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]) -> None:
        """Call `begin` when the client has sent something, at once if it already has."""
        data = sent(connection, FIRST_LOOK if self._guard.pressed() else PEEKED)
        if data is None:
            self._watch(SilentConnection(self, connection, ticket, begin))
        elif data:
            self.arrivals.add(data, connection, ticket, begin)
        else:
            ticket.leave()
            connection.close()

    def _begin(
        self, connection: socket.socket, ticket: Ticket, begin: Callable[[], None], data: bytes
    ) -> bool:
        """Refuse a request that began with `data`, or call `begin`; return whether it began."""
        refused = None
        if self._guard.pressed():  # else nothing is refused, and the head need not be looked at
            head = data if b"\r\n\r\n" in data else sent(connection, LONGEST_HEAD) or b""
            refused = self._refuse(connection, ticket.host, head)
        if refused is None:
            begin()
        else:
            self._refused(refused, connection, ticket, begin)
        return refused is None

    def _refused(
        self, refused: Refused, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]
    ) -> None:
        """Discard what still comes of a refused request, and keep or close its connection."""

        def wait() -> None:
            self._watch(SilentConnection(self, connection, ticket, begin, Phase.ONCE))

        if refused.unread and refused.keeps:
            self._watch(DiscardedConnection(self, connection, ticket, refused.unread, wait))
        elif refused.unread:
            left = self._guard.limits.discard_bytes
            self._rest(DiscardedConnection(self, connection, ticket, left, None))
        elif refused.keeps:
            wait()
        else:
            ticket.leave()
            connection.close()

    def close(self, watched: Watched, reason: str | None = None) -> None:
        """Close a connection; `reason` is counted if there is one."""
        if reason is not None:
            self._guard.ended(reason)
        self.remove(watched)
        watched.ticket.leave()
        watched.connection.close()

    def end(self) -> None:
        """Close all silent connections and those that wait to be begun, and stop watching."""
        self._loop.remove_reader(self._selector)
        self.arrivals.end()
        self._resting.end()
        watched = [each.data for each in self._selector.get_map().values()]
        for each in [*watched, *self._resting]:
            each.shutdown()
        self._selector.close()

    def remove(self, watched: Watched) -> None:
        """Stop watching a connection."""
        if not self._resting.remove(watched):
            self._selector.unregister(watched.connection)
        self._connections.discard(watched)
        self._guard.phases.leave(watched)

    def _watch(self, watched: Watched) -> None:
        self._connections.add(watched)
        self._guard.phases.enter(watched, watched.phase)
        self._selector.register(watched.connection, selectors.EVENT_READ, watched)

    def _rest(self, refused: DiscardedConnection) -> None:
        """Discard what comes of a refused request after its client has had time to leave."""
        self._connections.add(refused)
        self._resting.add(refused)
        self._guard.phases.enter(refused, refused.phase)

    def _resume(self, refused: DiscardedConnection) -> None:
        """Discard what has come by now; watch the connection if its client is still there."""
        refused.drain()
        if self._resting.remove(refused):
            self._selector.register(refused.connection, selectors.EVENT_READ, refused)

    def _look(self) -> None:
        """Handle connections whose clients have sent something or left."""
        seen = 0
        for key, _ in self._selector.select(0):
            watched: Watched = key.data
            # Discarding has no such limit: it costs little, and connections that it ends make room.
            seen += isinstance(watched, SilentConnection)
            if seen <= SEEN_AT_ONCE or isinstance(watched, DiscardedConnection):
                watched.readable()
