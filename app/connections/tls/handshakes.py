"""Let connections whose TLS handshake goes on make room for others, as those with slow headers do.

Without that, a client that sends one byte would keep its connection for the time of a handshake,
and some thousand of them all connections of a server.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.connections.guard import Guard
from app.connections.phases import Phase


class Handshake:
    """A connection whose handshake goes on in the task that runs now; to end it cancels the task.

    Its phase is that of headers, which have the same timeout. `leave` removes it from the counts.
    """

    def __init__(self, guard: Guard, client: str | None, leave: Callable[[], None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._guard = guard
        self._leave = leave
        self.client_key = client
        self.phase = Phase.HEAD

    def expire(self, _phase: Phase) -> None:
        """Close, because the handshake takes too long."""
        self._close("slow_handshake")

    def evict(self) -> None:
        """Close to make room for another connection."""
        self._close("evicted")

    def sends(self) -> bool:
        """Return False: no request can have come before the handshake has ended."""
        return False

    def unsent(self) -> int:
        """Return 0: nothing is written that `Phases` could measure."""
        return 0

    def stalled(self) -> None:
        """Never called: nothing is written."""

    def _close(self, reason: str) -> None:
        self._guard.ended(reason)
        self._guard.phases.leave(self)
        # The task leaves too, but only in a later turn, and the place is needed in this one.
        self._leave()
        self._task.cancel()


@contextmanager
def handshake(guard: Guard, client: str | None, leave: Callable[[], None]) -> Iterator[None]:
    """Let a connection make room while the block runs, in which its handshake is."""
    made = Handshake(guard, client, leave)
    guard.phases.enter(made, Phase.HEAD)
    try:
        yield
    finally:
        guard.phases.leave(made)
