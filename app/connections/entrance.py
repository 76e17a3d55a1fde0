"""Decide which connections are accepted, by three limits: of the server, a client, and the system.

At a limit another connection is closed to make room: one that never sent a request, one whose body
arrives slowly, or one that waits between two requests. If there is none, the new connection gets
the answer that the client should come back later, and is closed.
"""

import errno
import socket
from collections import deque
from contextlib import AbstractContextManager, suppress
from functools import lru_cache

from app.admission.counters import ByKey, Counters, Key, Total
from app.connections.descriptors import Spare
from app.connections.guard import Guard
from app.connections.refusals import refusal
from app.connections.tls.handshakes import handshake
from models.domain.errors import ConnectionsExhausted, ServiceError, TooManyConnections

AT_ONCE = 256
"""Connections that are accepted in one turn of the event loop. Few would let the kernel's queue
grow, in which a health check waits behind all others, and overflow, after which clients try again
only a second later; many would delay requests. To accept takes a tenth of what follows, of which
less is done in one turn (`arrivals.py`)."""

MOST_REFUSED = 128
"""Refused connections that stay open for a second, so that their clients can read the reason."""

MOST_ANSWERED = 32
"""Clients that get an answer each time when no descriptor is left for them."""

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Ticket:
    """One connection in the counts.

    `client` is the key it is counted by, None for a proxy; `host` is its address, "" for none.
    """

    __slots__ = ("_counters", "_held", "_key", "client", "host")

    def __init__(
        self, counters: Counters, client: str | None, key: Key | None, host: str = ""
    ) -> None:
        self._counters = counters
        self._key = key
        self._held = True
        self.client = client
        self.host = host

    def leave(self) -> None:
        """Remove the connection from the counts; further calls do nothing."""
        if self._held:
            self._held = False
            self._counters.add(Total.CONNECTIONS, -1)
            if self._key is not None:
                self._counters.add_for(self._key, ByKey.CONNECTIONS, -1)


class Entrance:
    """Accepts or refuses the connections of one process; `counters` are shared by all front ends.

    If `encrypted` is true, refused clients get no answer: their TLS handshake has not begun.
    """

    def __init__(self, guard: Guard, counters: Counters, encrypted: bool = False) -> None:
        self._guard = guard
        self._counters = counters
        self._encrypted = encrypted
        self._identified = lru_cache(4096)(self._identify)
        self.at_once = max(1, min(AT_ONCE, guard.limits.per_client // 4))
        """At most a quarter of a client's limit: only earlier connections can make room."""
        self._spare = Spare()
        self._without = False
        """Whether the last accept failed for want of a descriptor."""
        self._refused: deque[tuple[float, socket.socket]] = deque()

    def enter(self, connection: socket.socket, host: str) -> Ticket | None:
        """Count an accepted connection; return its ticket, or None if it was refused and closed."""
        found = self.ticket(host)
        if isinstance(found, Ticket):
            return found
        self.refuse(connection, host, found)
        return None

    def ticket(self, host: str) -> Ticket | ServiceError:
        """Count a connection of a client, for which another one is closed if there is no room.

        Return its ticket, or the error if no connection can make room now.
        """
        self._without = False
        client, key = self._identified(host)
        error = self._take(client, key)
        if error is not None:
            of = client if isinstance(error, TooManyConnections) else None
            if self._guard.make_room(of):
                error = self._take(client, key)
        return Ticket(self._counters, client, key, host) if error is None else error

    def _identify(self, host: str) -> tuple[str | None, Key | None]:
        client = self._guard.limits.client(host)
        return client, None if client is None else self._counters.key(f"client {client}")

    def _take(self, client: str | None, key: Key | None) -> ServiceError | None:
        """Count one more connection, or return the error if a limit does not allow it."""
        counters, limits = self._counters, self._guard.limits
        # The client's own limit comes first: if both are reached, a connection of the client makes
        # room under both, while one of another client would be closed in vain.
        if key and not counters.take_for(key, ByKey.CONNECTIONS, 1, limits.per_client):
            return _too_many(str(client), limits.per_client)
        if not counters.take(Total.CONNECTIONS, 1, limits.connections):
            if key:  # both counts or none
                counters.add_for(key, ByKey.CONNECTIONS, -1)
            return _exhausted(limits.connections)
        return None

    def handshake(self, ticket: Ticket) -> AbstractContextManager[None]:
        """Let a connection make room for others while the block runs, in which its handshake is."""
        return handshake(self._guard, ticket.client, ticket.leave)

    def no_descriptor(self, listening: socket.socket, error: OSError) -> bool:
        """Handle an accept that failed; return whether another one may be tried at once."""
        self._guard.note("no_descriptor", "any client", f"{error}; raise the limit of open files")
        if error.errno not in NO_DESCRIPTOR:
            return False
        if self._refused:
            self._drop()
            return True
        again, self._without = self._without, True
        if self._guard.make_room(None) or not again:
            return False  # a descriptor may be free after this turn of the event loop
        for _ in range(MOST_ANSWERED):
            connection = self._spare.accept(listening)
            if connection is None:
                break
            self._send(connection, _exhausted(self._guard.limits.connections))
            connection.close()
            self._spare.refill()
        return False

    def sweep(self) -> None:
        """Close refused connections whose clients have had a second to read the answer."""
        limit = self._guard.clock() - 1.0
        while self._refused and self._refused[0][0] <= limit:
            self._drop()
        self._spare.refill()

    def end(self) -> None:
        """Close all refused connections and the spare descriptor."""
        while self._refused:
            self._drop()
        self._spare.close()

    def refuse(self, connection: socket.socket, host: str, error: ServiceError) -> None:
        """Answer a client that gets no connection, and close it when the answer can be read."""
        self._guard.note(error.code, self._identified(host)[0], error.detail)
        self._send(connection, error)
        self._refused.append((self._guard.clock(), connection))
        if len(self._refused) > MOST_REFUSED:
            self._drop()

    def _send(self, connection: socket.socket, error: ServiceError) -> None:
        connection.setblocking(False)
        with suppress(OSError):  # the client has left
            if not self._encrypted:
                connection.send(refusal(error))
            # Only this direction is shut down. A full close with unread bytes of the client would
            # send a reset, and the client would lose the answer that tells the reason.
            connection.shutdown(socket.SHUT_WR)

    def _drop(self) -> None:
        self._refused.popleft()[1].close()


def _too_many(client: str, most: int) -> ServiceError:
    """Return the error for a client that has `most` connections."""
    return TooManyConnections(
        f"{client} has {most} connections, as many as one client may have "
        "(DARKROOM_MAX_CONNECTIONS_PER_CLIENT); use fewer, or close some"
    )


def _exhausted(most: int) -> ServiceError:
    """Return the error for any client when the server has `most` connections."""
    return ConnectionsExhausted(
        f"the server has {most} connections, as many as it may have (DARKROOM_MAX_CONNECTIONS); "
        "try again later"
    )
