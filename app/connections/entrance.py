"""Which connections are taken: the server's limit, each client's, and the operating system's.

At a limit the connection that is missed least makes room: one that never sent a request, or waits
between two. Where none is idle the new one is answered that it should come back, and closed.
"""

import errno
import socket
from collections import deque
from contextlib import suppress
from functools import lru_cache

from app.admission.counters import Counters, Key
from app.admission.fields import ByKey, Total
from app.connections.descriptors import Spare
from app.connections.guard import Guard
from app.connections.refusals import refusal
from models.domain.errors import ConnectionsExhausted, ServiceError, TooManyConnections

AT_ONCE = 64
"""Connections that are taken in one turn of the event loop: many that come at once must not fill
the kernel's queue, which lets others wait for a second; nor may they keep requests waiting."""

MOST_REFUSED = 128
"""Refused connections that stay open for a moment, so that their clients can read why."""

MOST_ANSWERED = 32
"""Clients that are told, at one try, that there is no descriptor for them."""

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Ticket:
    """One connection's place in the counts, given back once."""

    __slots__ = ("_counters", "_held", "_key", "client")

    def __init__(self, counters: Counters, client: str | None, key: Key | None) -> None:
        self._counters = counters
        self._key = key
        self._held = True
        self.client = client

    def leave(self) -> None:
        """Give the place back; further calls do nothing."""
        if self._held:
            self._held = False
            self._counters.add(Total.CONNECTIONS, -1)
            if self._key is not None:
                self._counters.add_for(self._key, ByKey.CONNECTIONS, -1)


class Entrance:
    """Of one process; `counters` are those of all front ends.

    `encrypted`: clients can be told nothing before their TLS handshake.
    """

    def __init__(self, guard: Guard, counters: Counters, encrypted: bool = False) -> None:
        self._guard = guard
        self._counters = counters
        self._encrypted = encrypted
        self._identified = lru_cache(4096)(self._identify)
        self.at_once = max(1, min(AT_ONCE, guard.limits.per_client // 4))
        """A part of what one client may have, as only those of earlier turns can make room."""
        self._spare = Spare()
        self._without = False
        """Whether the last accept failed for want of a descriptor."""
        self._refused: deque[tuple[float, socket.socket]] = deque()

    def enter(self, connection: socket.socket, host: str) -> Ticket | None:
        """Return the place of an accepted connection, or None: it was refused and is closed."""
        self._without = False
        client, key = self._identified(host)
        error = self._take(client, key)
        if error is not None:
            of = client if isinstance(error, TooManyConnections) else None
            if self._guard.phases.make_room(of):
                error = self._take(client, key)
        if error is not None:
            self._refuse(connection, error, client)
            return None
        return Ticket(self._counters, client, key)

    def _identify(self, host: str) -> tuple[str | None, Key | None]:
        client = self._guard.limits.client(host)
        return client, None if client is None else self._counters.key(f"client {client}")

    def _take(self, client: str | None, key: Key | None) -> ServiceError | None:
        """Count one connection more where the limits allow it, or return why they do not."""
        counters, limits = self._counters, self._guard.limits
        if not counters.take(Total.CONNECTIONS, 1, limits.connections):
            return _exhausted(limits.connections)
        if key and not counters.take_for(key, ByKey.CONNECTIONS, 1, limits.per_client):
            counters.add(Total.CONNECTIONS, -1)
            return _too_many(str(client), limits.per_client)
        return None

    def no_descriptor(self, listening: socket.socket, error: OSError) -> bool:
        """Deal with an accept that failed; whether another one may be tried at once."""
        self._guard.note("no_descriptor", "any client", f"{error}; raise the limit of open files")
        if error.errno not in NO_DESCRIPTOR:
            return False
        if self._refused:
            self._drop()
            return True
        again, self._without = self._without, True
        if self._guard.phases.make_room(None) or not again:
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
        """Close refused connections whose clients have had a second to read."""
        limit = self._guard.clock() - 1.0
        while self._refused and self._refused[0][0] <= limit:
            self._drop()
        self._spare.refill()

    def close(self) -> None:
        """Close everything."""
        while self._refused:
            self._drop()
        self._spare.close()

    def _refuse(self, connection: socket.socket, error: ServiceError, client: str | None) -> None:
        self._guard.note(error.code, client, error.detail)
        self._send(connection, error)
        self._refused.append((self._guard.clock(), connection))
        if len(self._refused) > MOST_REFUSED:
            self._drop()

    def _send(self, connection: socket.socket, error: ServiceError) -> None:
        connection.setblocking(False)
        with suppress(OSError):  # the client has left
            if not self._encrypted:
                connection.send(refusal(error))
            connection.shutdown(socket.SHUT_WR)

    def _drop(self) -> None:
        self._refused.popleft()[1].close()


def _too_many(client: str, most: int) -> ServiceError:
    """Return what a client with `most` connections is told."""
    return TooManyConnections(
        f"{client} has {most} connections, as many as one client may have "
        "(DARKROOM_MAX_CONNECTIONS_PER_CLIENT); use fewer, or close some"
    )


def _exhausted(most: int) -> ServiceError:
    """Return what a client is told when the server has `most` connections."""
    return ConnectionsExhausted(
        f"the server has {most} connections, as many as it may have (DARKROOM_MAX_CONNECTIONS); "
        "try again later"
    )
