"""Tell what a connection waits for from the state of its requests."""

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
