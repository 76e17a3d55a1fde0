"""First come, first served: requests for something limited wait until it can be given.

What is given, and how much of it there is, belongs to the caller: its `attempt` gives or refuses.
Gates of counted amounts (`app/admission/gate.py`) and slots of an arena
(`workers/ipc/pending.py`) use this queue.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Request = TypeVar("Request")
Grant = TypeVar("Grant")


def _ignored() -> None:
    """Do nothing when requests begin or cease to wait."""


class WaitQueue(Generic[Request, Grant]):
    """Queue of requests; it belongs to one event loop.

    `attempt` takes a request and the time since which it has been the first one, in nanoseconds of
    the monotonic clock. It returns a grant, or None if the request does not fit now. `give_back`
    takes a grant back that its request no longer wants. `changed` is called when the first request
    in the queue may be another one.
    """

    def __init__(
        self,
        attempt: Callable[[Request, int], Grant | None],
        give_back: Callable[[Grant], None],
        changed: Callable[[], None] = _ignored,
    ) -> None:
        self._attempt = attempt
        self._give_back = give_back
        self._changed = changed
        self._waiting: deque[tuple[Request, asyncio.Future[Grant]]] = deque()
        self._first_since = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    @property
    def first_since(self) -> int:
        """Return since when the first request has been the first, in ns; 0 if none waits."""
        return self._first_since if self._waiting else 0

    def take_now(self, request: Request) -> Grant | None:
        """Return what is given for a request without waiting; None if it has to wait."""
        return None if self._waiting else self._attempt(request, time.monotonic_ns())

    async def take(self, request: Request) -> Grant:
        """Return what is given for a request, after all requests that came before it.

        A request that is cancelled keeps nothing, even if it was given something at that moment.
        """
        if (granted := self.take_now(request)) is not None:
            return granted
        if not self._waiting:
            self._first_since = time.monotonic_ns()
        turn: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        place = (request, turn)
        self._waiting.append(place)
        self._changed()
        try:
            return await turn
        except asyncio.CancelledError:
            if place in self._waiting:
                self._leave(place)
            elif not turn.cancelled() and turn.exception() is None:
                self._give_back(turn.result())
                self.wake()
            raise

    def wake(self) -> None:
        """Give to requests in order, until the first one does not fit.

        To be called when something was given back, or when more may be given than before.
        """
        while self._waiting:
            request, turn = self._waiting[0]
            # A turn that is done here was cancelled, and its task has not run since to leave the
            # queue.
            if not turn.done():
                granted = self._attempt(request, self._first_since)
                if granted is None:
                    break
                turn.set_result(granted)
            self._waiting.popleft()
            self._first_since = time.monotonic_ns()
        self._changed()

    def refuse(self, error: Exception) -> None:
        """Raise an error in every request that waits."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(error)
        self._changed()

    def _leave(self, place: tuple[Request, asyncio.Future[Grant]]) -> None:
        """Remove a request that was cancelled; those behind it may fit where it did not."""
        was_first = self._waiting[0] == place
        self._waiting.remove(place)
        if was_first:
            self._first_since = time.monotonic_ns()
            self.wake()
