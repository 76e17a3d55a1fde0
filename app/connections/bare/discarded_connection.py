"""Discard the rest of a refused request, without a transport and a protocol."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from app.connections.entrance import Ticket
from app.connections.phases import Phase

PIECE = 1 << 20
"""Bytes that are discarded in one step."""

_SCRATCH = memoryview(bytearray(PIECE))
"""Memory for bytes that are discarded; on Linux none is written, because MSG_TRUNC asks TCP to drop
them in the kernel."""

_FLAGS = int(socket.MSG_TRUNC | socket.MSG_DONTWAIT)

STEPS = 8
"""Steps in which one connection is drained at most."""

ROOM = 1 << 19
"""Bytes that the kernel is asked to receive between two steps. Without that it takes 64 or 128 KiB,
and draining 425 kB of a client that had left took 70 µs of CPU time in place of 42."""


class Watched(Protocol):
    """A connection that `SilentConnections` watches."""

    phase: Phase
    client_key: str | None
    connection: socket.socket
    ticket: Ticket

    def readable(self) -> None:
        """Handle bytes of the client, or its end."""

    def expire(self, phase: Phase) -> None:
        """End, because the time of the phase is over."""

    def evict(self) -> None:
        """Close at once to make room for another connection."""

    def sends(self) -> bool:
        """Return whether bytes of a request wait to be read."""

    def shutdown(self) -> None:
        """Close, because the server shuts down."""

    def unsent(self) -> int:
        """Return 0."""

    def stalled(self) -> None:
        """Do nothing."""


class Watching(Protocol):
    """The connections of which a discarded one is a member."""

    def close(self, watched: Watched, reason: str | None = None) -> None:
        """Close a connection; `reason` is counted if there is one."""

    def remove(self, watched: Watched) -> None:
        """Stop watching a connection."""


class DiscardedConnection:
    """One connection whose request was refused, while the rest of it arrives.

    `left` is the number of bytes that are discarded at most. Then `kept` is called, or the
    connection is closed if there is no such function.
    """

    __slots__ = ("_all", "_kept", "_left", "client_key", "connection", "phase", "ticket")

    def __init__(
        self,
        all_: "Watching",
        connection: socket.socket,
        ticket: Ticket,
        left: int,
        kept: Callable[[], None] | None,
    ) -> None:
        self._all = all_
        self._left = left
        self._kept = kept
        self.connection = connection
        self.ticket = ticket
        self.client_key = ticket.client
        self.phase = Phase.LINGER if kept is None else Phase.DISCARD

    def readable(self) -> None:
        """Discard what has come."""
        self._discard()

    def drain(self) -> None:
        """Discard the rest of a request: all of it if its client has closed the connection.

        The kernel of such a client still sends the rest. Each step makes room for a part of it,
        which a client nearby has sent when the next step begins. Of a client that has not closed
        the connection, only the bytes that have arrived are discarded.
        """
        self._wake_at(ROOM)
        for _ in range(STEPS):
            size = self._discard()
            if size == 0:
                return
            if size is None:
                break
        self._wake_at(1)

    def _discard(self) -> int | None:
        """Discard a piece; return its bytes, None if nothing has come, 0 if no more is to come."""
        size = dropped(self.connection, self._left)
        if size is None:
            return None
        self._left -= size
        if size and self._left:
            return size
        if size and self._kept is not None:
            self._all.remove(self)
            self._kept()
        else:
            self._all.close(self)
        return 0

    def _wake_at(self, size: int) -> None:
        """Let the kernel receive `size` bytes before it reports any; that many are its memory."""
        with suppress(OSError):  # a limit of the kernel, or a connection that is lost
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def expire(self, _phase: Phase) -> None:
        """Close; the kernel resets the connection if the client still sends."""
        self._all.close(self)

    def evict(self) -> None:
        """Close to make room for another connection."""
        # A client that has sent all of its request sees a regular end and no reset by that.
        dropped(self.connection, self._left)
        self._all.close(self, "evicted")

    def sends(self) -> bool:
        """Return False: what comes belongs to the refused request."""
        return False

    def shutdown(self) -> None:
        """Close, because the server shuts down; what has come is discarded as in `evict`."""
        dropped(self.connection, self._left)
        self._all.close(self)

    def unsent(self) -> int:
        """Return 0: the answer is in the kernel's buffer."""
        return 0

    def stalled(self) -> None:
        """Never called: nothing is written."""


def dropped(connection: socket.socket, most: int) -> int | None:
    """Discard what a client has sent, at most `most` bytes of it; return their number.

    The result is 0 if the client has left, and None if it has sent nothing.
    """
    try:
        return connection.recv_into(_SCRATCH, min(most, PIECE), _FLAGS)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return 0
