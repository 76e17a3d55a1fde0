"""Hold connections whose clients have sent nothing yet, without a transport and a protocol.

To make a protocol, a transport and a parser takes as long as to accept a connection. Most of the
connections of a flood never send a byte, so one selector watches them all until the first byte of
one of them arrives. That one is then begun, whatever the number of silent ones before it.
"""

import asyncio
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

from app.connections.entrance import Ticket
from app.connections.guard import Guard
from app.connections.phases import Phase

BEGUN_AT_ONCE = 32
"""Connections that are begun in one turn of the event loop, so that requests go on beside them."""


class Member(Protocol):
    """A connection as the server counts it and ends it when the server shuts down."""

    def shutdown(self) -> None:
        """End as soon as no answer is lost by that."""


class SilentConnection:
    """One connection that has sent nothing; its phase is FRESH until it is begun or closed."""

    __slots__ = ("_all", "begin", "client_key", "connection", "phase", "ticket")

    def __init__(
        self,
        all_: "SilentConnections",
        connection: socket.socket,
        ticket: Ticket,
        begin: Callable[[], None],
    ) -> None:
        self._all = all_
        self.connection = connection
        self.ticket = ticket
        self.begin = begin
        self.client_key = ticket.client
        self.phase = Phase.FRESH

    def expire(self, _phase: Phase) -> None:
        """Close, because the client has been silent for too long."""
        self._all.close(self, "idle")

    def evict(self) -> None:
        """Close to make room for another connection."""
        self._all.close(self, "evicted")

    def shutdown(self) -> None:
        """Close, because the server shuts down."""
        self._all.close(self)

    def unsent(self) -> int:
        """Return 0: nothing is written before the first byte has come."""
        return 0

    def stalled(self) -> None:
        """Never called: nothing is written."""


class SilentConnections:
    """The silent connections of one listening socket.

    They are members of `connections`, the server's set of all its connections.
    """

    def __init__(self, guard: Guard, connections: set[Member]) -> None:
        self._guard = guard
        self._connections = connections
        self._selector = selectors.DefaultSelector()
        # An epoll descriptor is itself readable when one of its members is, so the event loop
        # watches thousands of silent connections as one.
        asyncio.get_running_loop().add_reader(self._selector, self._look)

    def enter(self, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]) -> None:
        """Call `begin` when the client has sent something, at once if it already has."""
        silent = SilentConnection(self, connection, ticket, begin)
        if sent(connection) is None:
            self._connections.add(silent)
            self._guard.phases.enter(silent, Phase.FRESH)
            self._selector.register(connection, selectors.EVENT_READ, silent)
        else:
            begin()

    def close(self, silent: SilentConnection, reason: str | None = None) -> None:
        """Close a silent connection; `reason` is counted if there is one."""
        if reason is not None:
            self._guard.ended(reason)
        self._remove(silent)
        silent.ticket.leave()
        silent.connection.close()

    def end(self) -> None:
        """Close all silent connections, and stop watching."""
        asyncio.get_running_loop().remove_reader(self._selector)
        for key in list(self._selector.get_map().values()):
            self.close(key.data)
        self._selector.close()

    def _look(self) -> None:
        """Begin connections that have sent something; close those whose clients have left."""
        for key, _ in self._selector.select(0)[:BEGUN_AT_ONCE]:
            silent: SilentConnection = key.data
            # The byte is only looked at (MSG_PEEK): the transport that is made for the connection
            # reads it again.
            if sent(silent.connection) == b"":
                self.close(silent)
            else:
                self._remove(silent)
                silent.begin()

    def _remove(self, silent: SilentConnection) -> None:
        self._selector.unregister(silent.connection)
        self._connections.discard(silent)
        self._guard.phases.leave(silent)


def sent(connection: socket.socket) -> bytes | None:
    """Return the first byte that a client has sent, b"" if it has left, None if it is silent."""
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
