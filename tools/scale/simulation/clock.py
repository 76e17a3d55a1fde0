"""Virtual time: a heap of events, and stations whose customers wait in the order of arrival."""

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], object]


class Clock:
    """Runs actions in the order of their moments, in seconds, and of `at` where these are equal."""

    __slots__ = ("_events", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._number = 0
        self._events: list[tuple[float, int, Action, Any]] = []

    def time(self) -> float:
        """Return the present moment."""
        return self.now

    def at(self, moment: float, action: Action, argument: Any = None) -> None:
        """Call `action(argument)` at a moment that is not past."""
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action, argument))

    def run(self, until: float) -> None:
        """Run all events up to a moment, which is the present one afterwards."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until:
            self.now, _, action, argument = pop(events)
            action(argument)
        self.now = until

    def run_out(self, most: float) -> None:
        """Run until no event is left, at most up to the moment `most`."""
        while self._events and self._events[0][0] <= most:
            self.run(self._events[0][0])


class Station:
    """One server, first come first served: Lindley's recursion gives the end of each service.

    Lindley, 1952, "The theory of queues with a single server",
    https://doi.org/10.1017/S0305004100027638. `busy` adds up the seconds of all services.
    """

    __slots__ = ("_clock", "_free_at", "busy")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy = 0.0

    def take(self, seconds: float, action: Action, argument: Any = None) -> None:
        """Serve a customer for `seconds` after all customers before, then call the action."""
        start = self._free_at if self._free_at > self._clock.now else self._clock.now
        self._free_at = start + seconds
        self.busy += seconds
        self._clock.at(self._free_at, action, argument)

    @property
    def wait(self) -> float:
        """Return the seconds until a customer that comes now is served."""
        return max(0.0, self._free_at - self._clock.now)
