"""Tell what a connection waits for, from the state of its requests and of its socket."""

import asyncio
import fcntl
import select
import termios
from typing import TYPE_CHECKING

from app.connections.phases import Phase

if TYPE_CHECKING:
    from app.connections.http1.protocol import GuardedProtocol


def phase_of(connection: "GuardedProtocol", begun: int) -> Phase:
    """Return the phase that a connection is in; `begun` requests have begun to arrive on it."""
    incoming, cycle = connection.incoming, connection.cycle
    if connection.transport.is_closing():
        return Phase.CLOSING
    if connection.phase is Phase.LINGER:
        return Phase.LINGER
    if incoming is not None and incoming.in_head:
        return Phase.HEAD
    if cycle is None:
        return Phase.FRESH
    if cycle.response_complete:
        kept = Phase.KEPT if begun > 1 else Phase.ONCE
        return kept if incoming is None else Phase.DISCARD
    return Phase.ANSWER if incoming is None else Phase.BODY


def sends(transport: asyncio.BaseTransport) -> bool:
    """Return whether bytes of the client wait in the buffer of the transport's socket."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return False
    # The sockets of transports cannot be read, and `select` does not tell bytes from their end.
    return any(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))


def is_acknowledged(transport: asyncio.BaseTransport) -> bool:
    """Return whether the client's host has acknowledged all bytes that the transport was given.

    A transport that encrypts does not tell what the one below it has not written yet, which has
    nothing left once the kernel has nothing left: it writes whenever the kernel has room.
    """
    connection = transport.get_extra_info("socket")
    if connection is None:
        return True
    return not any(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Return whether the connection of a transport is reset, or closed at both ends."""
    return bool(_events(transport, 0))


def has_ended(transport: asyncio.BaseTransport) -> bool:
    """Return whether a client sends no more, even if bytes before that end were not read."""
    return bool(_events(transport, getattr(select, "POLLRDHUP", 0)))  # Linux alone has it


def _events(transport: asyncio.BaseTransport, wanted: int) -> int:
    """Return those of the `wanted` events that a socket has; errors and hang-ups always count."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return 0
    poll = select.poll()
    poll.register(connection.fileno(), wanted)
    return sum(events for _, events in poll.poll(0))
