"""End the slowest bodies where too many arrive at the same time.

A client that sends each body just above the minimum rate holds a connection for as long as a
request may take, and every piece of it costs the server as much CPU time as the head of a request.
So only a part of all connections, and of those of one client, may be slow bodies. Faster bodies
are not counted, and of slow ones the fastest are kept.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Protocol

from models.domain.errors import SlowBody

SLOW = 32768
"""Bytes per second from which a body is not slow: a client that sends as much through a quarter of
its connections needs 8 MiB/s for that."""

GRACE = 2.0
"""Seconds in which a body may arrive at any rate; most have arrived whole by then."""

AT_LIMIT = 0.25
"""Seconds of grace while there is no room for a new connection."""

PART = 4
"""One connection in this many may be a slow body."""

AT_ONCE = 32
"""Bodies that are refused in one turn of the event loop."""

LOOKED_AT = 64
"""Bodies among which a new connection looks for one to replace, so that a flood of connections
costs little. They are the ones that began to arrive first."""


class Arriving(Protocol):
    """A connection on which a body arrives."""

    client_key: str | None

    def body_rate(self, now: float, grace: float) -> float | None:
        """Return the bytes per second that have come of the body; None within `grace` seconds.

        It is None as well if the server does not read at present.
        """

    def shed(self) -> None:
        """Refuse the request, because its body comes slowly and others need the connection."""

    def evict(self) -> None:
        """Close at once to make room for another connection."""


class SlowBodies:
    """The slow ones among `bodies`; limits are those of connections, in all and for each client."""

    def __init__(
        self,
        bodies: Callable[[], Collection[Arriving]],
        connections: int,
        per_client: int,
        clock: Callable[[], float],
    ) -> None:
        self._bodies = bodies
        self._most = max(1, connections // PART)
        self._per_client = max(1, per_client // PART)
        self._clock = clock

    def sweep(self) -> None:
        """Refuse the slowest bodies beyond the limits."""
        bodies = self._bodies()
        if len(bodies) <= min(self._per_client, self._most):
            return
        found = self._slow(bodies, GRACE)
        kept: Counter[str | None] = Counter()
        n_kept = 0  # the sum of `kept`, which would take a step for each client to compute
        shed = []
        for _, body in sorted(found, key=lambda each: -each[0]):
            client = body.client_key
            own = client is not None and kept[client] >= self._per_client
            if own or n_kept >= self._most:
                shed.append(body)
            else:
                kept[client] += 1
                n_kept += 1
        self._shed(shed)

    def _shed(self, bodies: Sequence[Arriving]) -> None:
        """Refuse some bodies, and the others in later turns of the event loop: each has an answer,
        and requests go on beside them.
        """
        for body in bodies[:AT_ONCE]:
            body.shed()
        if len(bodies) > AT_ONCE:
            asyncio.get_running_loop().call_soon(self._shed, bodies[AT_ONCE:])

    def make_room(self, client: str | None) -> bool:
        """Close a slow body of `client`, or of any client; return whether there was one."""
        own = (each for each in self._bodies() if client is None or each.client_key == client)
        found = self._slow(islice(own, LOOKED_AT), AT_LIMIT)
        if not found:
            return False
        min(found, key=lambda each: each[0])[1].evict()
        return True

    def _slow(self, bodies: Iterable[Arriving], grace: float) -> list[tuple[float, Arriving]]:
        """Return slow bodies with their rates."""
        now = self._clock()
        rates = ((each.body_rate(now, grace), each) for each in bodies)
        return [(rate, each) for rate, each in rates if rate is not None and rate < SLOW]


def slowest() -> SlowBody:
    """Return the error for a body that is refused because others are faster."""
    return SlowBody("too many bodies arrive slowly, and this is one of the slowest; send it again")
