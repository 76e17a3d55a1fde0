"""Hold what all connections of a process share: limits, phases, counters and log lines."""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from app.connections.body_rate import TURNS
from app.connections.early_answer import Decide, never
from app.connections.health_checks import is_check
from app.connections.in_turns import InTurns
from app.connections.limits import ConnectionLimits
from app.connections.notices import Notices
from app.connections.phases import FIRST_VICTIMS, LAST_VICTIMS, PROGRESS_WINDOW, Phase, Phases
from app.connections.slow_bodies import Arriving, SlowBodies

LINGER = 30.0
"""Seconds for which a refused client may go on sending data that is discarded."""

CLOSE = 2.0
"""Seconds in which a client that has received its last byte can end TLS for its part. The event
loop would wait for 30, in which the connection holds its memory, and a server that ends waits."""

AT_ONCE = 4
"""Requests that are started, or go on with their bodies, in a turn of the event loop. Most of them
take less than a millisecond there, the dearest 20."""

log = logging.getLogger("darkroom.connections")


def _uncounted(reason: str) -> None:
    """Count nothing, in servers without metrics."""


def _never_pressed() -> bool:
    """Return False, in servers that refuse nothing by headers."""
    return False


def _called(go_on: Callable[[], object]) -> float:
    """Go on with a request, whose cost counts as 1."""
    go_on()
    return 1


@dataclass(slots=True)
class Guard:
    """Shared parts of connections; `ended` counts those that the server ended, by the reason.

    `decide` answers requests by their headers, before the application sees them. `pressed` returns
    whether it refuses many, so that it is worth asking before a new connection begins.
    """

    limits: ConnectionLimits
    ended: Callable[[str], None] = _uncounted
    notices: Notices = field(default_factory=lambda: Notices(log))
    decide: Decide = never
    pressed: Callable[[], bool] = _never_pressed
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    phases: Phases = field(init=False)
    slow_bodies: SlowBodies = field(init=False)
    turns: InTurns[Callable[[], None]] = field(init=False)
    """Starts requests, and goes on with those that have waited for a body."""

    def __post_init__(self) -> None:
        limits = self.limits
        times = {
            Phase.FRESH: limits.idle_timeout,
            Phase.HEAD: limits.header_timeout,
            Phase.ONCE: limits.idle_timeout,
            Phase.KEPT: limits.idle_timeout,
            Phase.BODY: PROGRESS_WINDOW,  # to notice connections that were closed meanwhile
            Phase.ANSWER: PROGRESS_WINDOW,
            Phase.DISCARD: LINGER,
            Phase.LINGER: LINGER,
            Phase.CLOSING: CLOSE,
        }
        self.phases = phases = Phases(times, limits.min_rate, self.clock)

        self.turns = InTurns(_called, AT_ONCE, ranks=2)

        def bodies() -> Collection[Arriving]:
            return cast(Collection[Arriving], phases.members(Phase.BODY))

        self.slow_bodies = SlowBodies(bodies, limits.connections, limits.per_client, self.clock)

    def start(self, start: Callable[[Any, Any], None], cycle: Any, app: Any) -> None:
        """Start a request by `start(cycle, app)`, now or in its turn; health checks go first."""
        scope = cycle.scope
        scope[TURNS] = self.turns
        urgent = is_check(scope["path"], scope["query_string"])
        self.turns.add(partial(start, cycle, app), 0 if urgent else 1)

    def sweep(self) -> None:
        """End all connections whose time is over, and slow ones beyond their limits.

        Connections that are not read are looked at: their clients may have left.
        """
        for phase in (Phase.BODY, Phase.ANSWER):
            for each in self.phases.members(phase):
                each.look()  # type: ignore[attr-defined]  # only protocols enter these phases
        self.phases.sweep()
        self.slow_bodies.sweep()

    def make_room(self, client: str | None) -> bool:
        """Close a connection of `client`, or of any client; return whether there was one to close.

        Idle ones are closed first, then bodies that arrive slowly, then connections that were used.
        """
        return (
            self.phases.make_room(client, FIRST_VICTIMS)
            or self.slow_bodies.make_room(client)
            or self.phases.make_room(client, LAST_VICTIMS)
        )

    def note(self, reason: str, client: str | None, detail: str) -> None:
        """Count and log that the server ended a connection because of what the client did."""
        self.ended(reason)
        self.notices.warn(reason, f"connection of {client or 'a proxy'} ended, {reason}: {detail}")
