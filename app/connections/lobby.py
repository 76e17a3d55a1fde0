"""Connections whose clients have sent nothing yet: a socket and a place in the counts, no more.

To make a protocol, a transport and a parser takes as long as to accept a connection. Most of the
connections of a flood never send a byte, so they wait here, all behind one selector, until their
first byte comes. One that has sent something is begun whatever the number of silent ones before.
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
    """A connection as the server counts it, and ends it at its shutdown."""

    def shutdown(self) -> None:
        """End as soon as nothing is lost by it."""


class Silent:
    """One connection that has sent nothing; its phase is FRESH until it is begun or closed."""

    __slots__ = ("_lobby", "begin", "client_key", "connection", "phase", "ticket")

    def __init__(
        self, lobby: "Lobby", connection: socket.socket, ticket: Ticket, begin: Callable[[], None]
    ) -> None:
        self._lobby = lobby
        self.connection = connection
        self.ticket = ticket
        self.begin = begin
        self.client_key = ticket.client
        self.phase = Phase.FRESH

    def expire(self, phase: Phase) -> None:
        """Close: the client has been silent for too long."""
        self._lobby.close(self, "idle")

    def evict(self) -> None:
        """Close, to make room for another connection."""
        self._lobby.close(self, "evicted")

    def shutdown(self) -> None:
        """Close, because the server ends."""
        self._lobby.close(self)

    def unsent(self) -> int:
        """Return 0: nothing is written before the first byte has come."""
        return 0

    def stalled(self) -> None:
        """Never called: nothing is written."""


class Lobby:
    """The silent connections of one process.

    `connections` is the server's set of all its connections, which these are members of.
    """

    def __init__(self, guard: Guard, connections: set[Member]) -> None:
        self._guard = guard
        self._connections = connections
        self._selector = selectors.DefaultSelector()
        asyncio.get_running_loop().add_reader(self._selector, self._look)

    def enter(self, connection: socket.socket, ticket: Ticket, begin: Callable[[], None]) -> None:
        """Call `begin` when the client has sent something, which may be now."""
        silent = Silent(self, connection, ticket, begin)
        if sent(connection) is None:
            self._connections.add(silent)
            self._guard.phases.enter(silent, Phase.FRESH)
            self._selector.register(connection, selectors.EVENT_READ, silent)
        else:
            begin()

    def close(self, silent: Silent, reason: str | None = None) -> None:
        """Close a silent connection; `reason` is counted if there is one."""
        if reason is not None:
            self._guard.ended(reason)
        self._remove(silent)
        silent.ticket.leave()
        silent.connection.close()

    def end(self) -> None:
        """Close all, and watch no more."""
        asyncio.get_running_loop().remove_reader(self._selector)
        for key in list(self._selector.get_map().values()):
            self.close(key.data)
        self._selector.close()

    def _look(self) -> None:
        """Begin those that have sent something, close those whose clients have left."""
        for key, _ in self._selector.select(0)[:BEGUN_AT_ONCE]:
            silent: Silent = key.data
            if sent(silent.connection) == b"":
                self.close(silent)
            else:
                self._remove(silent)
                silent.begin()

    def _remove(self, silent: Silent) -> None:
        self._selector.unregister(silent.connection)
        self._connections.discard(silent)
        self._guard.phases.leave(silent)


def sent(connection: socket.socket) -> bytes | None:
    """Return the first byte that a client has sent, b"" when it has left, None when it waits."""
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""
