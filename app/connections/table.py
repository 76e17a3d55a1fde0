"""Keep the connections of a process: their number, their phases, and the timeouts of the phases.

A connection enters a phase at the end of an ordered dictionary, and all connections of a phase have
the same timeout. So one sweep every half second checks only the first members of each phase,
whatever the number of connections, and no connection has a timer or a task of its own.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Protocol

from app.admission.counters import ByKey, Counters, Key, Total
from app.connections.limits import ConnectionLimits
from models.domain.errors import ConnectionsExhausted, ServiceError, TooManyConnections

log = logging.getLogger("darkroom.connections")

READING = 1.0
"""Seconds in which a client can read its last answer and send its next request."""

LINGER = 30.0
"""Seconds for which a refused client may go on sending data that is discarded, and for which a
client may read the last bytes of a connection that the server has closed."""

MOST_REFUSED = 128
"""Refused connections that stay open for a second, so that their clients can read the reason."""

AT_ONCE = 4
"""Requests that go on in a turn of the event loop after they waited for their bodies: the bodies of
hundreds may come to their end at the same moment, and take milliseconds each to parse."""


class Phase(IntEnum):
    """The event that a connection waits for."""

    IDLE = 0
    """The first byte of a request, or the short rest of a body whose request has been answered."""
    HEAD = 1
    """The end of a request's headers."""
    WORKING = 2
    """The application, which may wait for the rest of the body."""
    ENDING = 3
    """The client's close, after the last answer; the server discards the bytes of the client."""
    REFUSED = 4
    """The client's close, after the refusal of the connection, which is not counted."""


class Connection(Protocol):
    """A connection as the table uses it."""

    phase: Phase
    client_key: Key | None

    def expire(self, phase: Phase) -> None:
        """End, or enter another phase, because the time of `phase` is over."""

    def evict(self) -> None:
        """Close at once to make room for another connection."""

    def look(self) -> None:
        """Check that the client is there, sends its body, and reads its answer."""

    def in_use(self) -> bool:
        """Return whether a request has come that was not read, or an answer still goes out."""


class ConnectionTable:
    """The connections of one process and port; `counters` are shared by all front ends.

    `ended` counts the connections that the server ended, by the reason. `clock` returns seconds.
    Call `sweep` every half second, or four times in the shortest timeout.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        counters: Counters,
        ended: Callable[[str], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self.ended = ended
        self.clock = clock or asyncio.get_running_loop().time
        self._counters = counters
        self._key = lru_cache(4096)(self._key_of)
        self._members: tuple[dict[Connection, float], ...] = tuple({} for _ in Phase)
        self._turns = 0
        """Requests that went on in this turn of the event loop."""
        self._timeouts = {
            Phase.IDLE: limits.idle_timeout,
            Phase.HEAD: limits.header_timeout,
            Phase.ENDING: LINGER,
            Phase.REFUSED: READING,
        }

    def enter(self, connection: Connection, host: str) -> ServiceError | None:
        """Count a new connection of the client at `host`; another connection may be closed for it.

        Return the error if no connection can make room now; the connection is then REFUSED, and
        the oldest refused connection ends if there are too many.
        """
        key = connection.client_key = self._key(host)
        error = self._take(key)
        own = isinstance(error, TooManyConnections)
        if error is not None and self.make_room(key if own else None):
            error = self._take(key)
        if error is None:
            self.move(connection, Phase.IDLE)
            return None
        self.note(error.code, host, error.detail)
        self.move(connection, Phase.REFUSED)
        refused = self._members[Phase.REFUSED]
        if len(refused) > MOST_REFUSED:
            next(iter(refused)).expire(Phase.REFUSED)
        return error

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has been closed; further calls do nothing."""
        if self._members[connection.phase].pop(connection, None) is None:
            return
        if connection.phase is not Phase.REFUSED:
            self._counters.add(Total.CONNECTIONS, -1)
            if connection.client_key is not None:
                self._counters.add_for(connection.client_key, ByKey.CONNECTIONS, -1)

    def move(self, connection: Connection, phase: Phase) -> None:
        """Move a connection to the end of `phase`, where its timeout begins anew."""
        self._members[connection.phase].pop(connection, None)
        connection.phase = phase
        self._members[phase][connection] = self.clock()

    def seconds_in(self, connection: Connection) -> float:
        """Return the seconds since a connection has entered its phase."""
        now = self.clock()
        return now - self._members[connection.phase].get(connection, now)

    def sweep(self) -> None:
        """End all connections whose time is over, and look at connections that work."""
        for each in list(self._members[Phase.WORKING]):
            each.look()
        now = self.clock()
        for phase, seconds in self._timeouts.items():
            for each in list(self._older(phase, now - seconds)):
                each.expire(phase)

    def make_room(self, client: Key | None = None) -> bool:
        """Close the oldest connection of `client`, or of any client, that ends or is idle.

        Return whether there was one. A client has a second to read its last answer; after that,
        the rest of an answer that the client does not read is dropped. An idle connection whose
        request has come but was not read is kept: to close it would reset it.
        """
        now = self.clock()
        ending, idle = self._older(Phase.ENDING, now - READING), self._older(Phase.IDLE, now)
        for each in itertools.chain(ending, idle):
            own = client is None or each.client_key == client
            if own and (each.phase is Phase.ENDING or not each.in_use()):
                self.ended("evicted")
                each.evict()
                self.leave(each)
                return True
        return False

    async def turn(self) -> None:
        """Wait until a request may go on that has waited for its body."""
        while self._turns >= AT_ONCE:  # noqa: ASYNC110 (each turn of the event loop is wanted)
            await asyncio.sleep(0)
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turns += 1

    def _next_turn(self) -> None:
        self._turns = 0

    def note(self, reason: str, client: object, detail: str) -> None:
        """Count and log that the server ended a connection because of the client."""
        self.ended(reason)
        log.debug("connection of %s ended, %s: %s", client, reason, detail)

    def _older(self, phase: Phase, limit: float) -> Iterator[Connection]:
        """Yield the connections that entered `phase` at `limit` or before."""
        for each, since in self._members[phase].items():
            if since > limit:
                return
            yield each

    def _key_of(self, host: str) -> Key | None:
        client = self.limits.client(host)
        return None if client is None else self._counters.key(f"client {client}")

    def _take(self, key: Key | None) -> ServiceError | None:
        """Count another connection, or return the error if a limit does not allow it."""
        counters, most, per_client = self._counters, self.limits.connections, self.limits.per_client
        # The client's own limit comes first: if both are reached, a connection of the client makes
        # room under both, while a connection of another client would be closed in vain.
        if key and not counters.take_for(key, ByKey.CONNECTIONS, 1, per_client):
            return TooManyConnections(
                f"this client has {per_client} connections, as many as one client may have; "
                "use fewer, or close some"
            )
        if not counters.take(Total.CONNECTIONS, 1, most):
            if key:  # both counts or none
                counters.add_for(key, ByKey.CONNECTIONS, -1)
            return ConnectionsExhausted(
                f"the server has {most} connections, as many as it may have "
                "(DARKROOM_MAX_CONNECTIONS); try again later"
            )
        return None
