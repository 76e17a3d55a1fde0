"""Track what each connection of a process waits for; one timer ends those that wait too long.

A connection enters a phase at the end of an ordered dictionary, and all connections of a phase have
the same timeout. So only the first ones need a check, whatever the number of connections.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice, takewhile
from typing import Protocol

PROGRESS_WINDOW = 10.0
"""Seconds over which the rate of a client that reads its answer is measured."""

READING = 1.0
"""Seconds in which a client can read its last answer and send its next request. A client that still
sends when its connection is closed to make room sees a reset, and may lose an answer that it has
not read."""


class Phase(IntEnum):
    """What a connection waits for; each member's text completes "it waits for"."""

    FRESH = 0
    """The first byte of its first request."""
    HEAD = 1
    """The end of a request's headers, or that of the TLS handshake before the first one."""
    BODY = 2
    """The rest of a body, which the application waits for, or the application itself."""
    ANSWER = 3
    """The application."""
    DISCARD = 4
    """The short rest of a body whose request has been answered already."""
    ONCE = 5
    """The first byte of its second request."""
    KEPT = 6
    """The first byte of a further request."""
    LINGER = 7
    """The client's close, after the last answer; what the client sends is discarded."""
    CLOSING = 8
    """The client to read the last bytes, and to end TLS; then the connection is closed."""


class Connection(Protocol):
    """A connection as `Phases` uses it."""

    phase: Phase
    client_key: str | None

    def expire(self, phase: Phase) -> None:
        """End, or enter another phase, because the time of `phase` is over."""

    def evict(self) -> None:
        """Close at once to make room for another connection."""

    def sends(self) -> bool:
        """Return whether bytes of the client have come that were not read."""

    def unsent(self) -> int:
        """Return the bytes of answers that the client has not read."""

    def stalled(self) -> None:
        """End because the client reads too slowly."""


Victims = Sequence[tuple[Phase, float]]
"""Phases in which connections may be closed to make room, and the seconds after which they may."""

FIRST_VICTIMS: Victims = (
    (Phase.FRESH, 1.0),
    (Phase.LINGER, READING),
    (Phase.DISCARD, READING),
    (Phase.HEAD, 2.0),
)
"""Connections that have shown no use. A new one has a second to send its first byte: while others
flood the server with requests, it is usually a good client's. The rest of a body that is discarded
may never come, so a connection that waits for it makes room like one that waits for its end."""

LAST_VICTIMS: Victims = (
    (Phase.ONCE, 0.0),
    (Phase.KEPT, READING),
    (Phase.FRESH, 0.0),
    (Phase.KEPT, 0.0),
)
"""Connections that are closed where there is none of the others. A client between two requests has
its answer and can connect again, while a new one would see its first request fail."""

BETWEEN_REQUESTS = (Phase.FRESH, Phase.ONCE, Phase.KEPT)
"""Phases in which a request may have come that was not read yet."""

LOOKED_AT = 64
"""Connections of a phase that are looked at for one that can be closed, so that a flood of new
connections costs little."""


class Phases:
    """All connections of a process by phase; `seconds` are the timeouts of phases that have one."""

    def __init__(
        self, seconds: Mapping[Phase, float], min_rate: int, clock: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._least = max(1, int(min_rate * PROGRESS_WINDOW))
        self._clock = clock
        self._members: tuple[dict[Connection, float], ...] = tuple({} for _ in Phase)
        self._writing: dict[Connection, tuple[float, int]] = {}

    def enter(self, connection: Connection, phase: Phase) -> None:
        """Move a connection to the end of `phase`, where its timeout begins anew."""
        members = self._members
        # Dictionaries keep the order of insertion. A phase has one timeout, so the order of
        # entering is the order of expiring: the sweep stops at the first one that is not late.
        members[connection.phase].pop(connection, None)
        connection.phase = phase
        members[phase][connection] = self._clock()

    def leave(self, connection: Connection) -> None:
        """Forget a connection that has been closed."""
        self._members[connection.phase].pop(connection, None)
        self._writing.pop(connection, None)

    def seconds_in(self, connection: Connection) -> float:
        """Return the seconds since a connection has entered its phase."""
        members = self._members[connection.phase]
        return self._clock() - members.get(connection, self._clock())

    def watch_writing(self, connection: Connection) -> None:
        """Begin to measure how quickly the client reads."""
        self._writing[connection] = self._clock(), connection.unsent()

    def written(self, connection: Connection) -> None:
        """Stop measuring, because the client has read enough."""
        self._writing.pop(connection, None)

    def members(self, phase: Phase) -> Collection[Connection]:
        """Return the connections of a phase; the one that has been in it for longest is first."""
        return self._members[phase].keys()

    def sweep(self) -> None:
        """End all connections whose time is over, and those that read too slowly."""
        now = self._clock()
        for phase, seconds in self._seconds.items():
            for each in self._late(phase, now - seconds):
                each.expire(phase)
        for each, (since, unsent) in list(self._writing.items()):
            if now - since >= PROGRESS_WINDOW:
                left = each.unsent()
                if left and unsent - left < self._least:
                    each.stalled()
                else:
                    self._writing[each] = now, left

    def _late(self, phase: Phase, limit: float) -> list[Connection]:
        """Return the connections that entered `phase` at `limit` or before."""
        members = self._members[phase].items()
        return [each for each, _ in takewhile(lambda member: member[1] <= limit, members)]

    def make_room(self, client: str | None, victims: Victims) -> bool:
        """Close an idle connection of `client`, or of any client; return whether there was one.

        The order is that of `victims`, and within a phase the oldest connection comes first. One
        whose request has come but was not read is not idle: to close it would reset it.
        """
        for phase, seconds in victims:
            for each in islice(self._of(client, phase, seconds), LOOKED_AT):
                if phase not in BETWEEN_REQUESTS or not each.sends():
                    each.evict()
                    return True
        return False

    def _of(self, client: str | None, phase: Phase, seconds: float) -> Iterator[Connection]:
        """Yield the connections of a client that have been in a phase for at least `seconds`."""
        limit = self._clock() - seconds
        for each, since in self._members[phase].items():
            if since > limit:
                return
            if client is None or each.client_key == client:
                yield each


class Timer:
    """A timer of the running event loop that calls `sweep` every `seconds` until it is stopped."""

    def __init__(self, sweep: Callable[[], None], seconds: float) -> None:
        self._sweep = sweep
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(seconds, self._turn)

    def _turn(self) -> None:
        self._next = self._loop.call_later(self._seconds, self._turn)
        self._sweep()

    def end(self) -> None:
        """Stop the calls."""
        self._next.cancel()
