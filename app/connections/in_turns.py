"""Handle what comes in bursts: some of it in each turn of the event loop, what is urgent first.

A thousand connections that send a request at the same moment would else be one turn of seconds, in
which the event loop does nothing else.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

OLDEST = 4
"""Of this many things that are handled one is the oldest, whatever its rank. Otherwise a flood of
urgent things would keep all others waiting for as long as it lasts."""

T = TypeVar("T")


class InTurns(Generic[T]):
    """Calls `handle` for each thing, until its results in a turn of the event loop reach `most`.

    The rest waits for the next turn. Things have ranks from 0, the most urgent, to `ranks` - 1. A
    result is the cost of a thing, mostly 1.
    """

    def __init__(self, handle: Callable[[T], float], most: float, ranks: int) -> None:
        self._handle = handle
        self._most = most
        self._queues: tuple[deque[tuple[int, T]], ...] = tuple(deque() for _ in range(ranks))
        self._numbers = itertools.count()
        self._cost = 0.0
        """The cost of what was handled in this turn of the event loop."""
        self._turn: asyncio.Handle | None = None
        """The next turn, if there is something to do in it."""

    @property
    def waiting(self) -> int:
        """Return how many things wait."""
        return sum(map(len, self._queues))

    def add(self, thing: T, rank: int) -> None:
        """Handle a thing now, or in its turn."""
        if self._cost < self._most and not any(self._queues[: rank + 1]):
            self._cost += self._handle(thing)
        else:
            self._queues[rank].append((next(self._numbers), thing))
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def end(self) -> Iterator[T]:
        """Handle nothing more; yield what has waited."""
        if self._turn is not None:
            self._turn.cancel()
        for queue in self._queues:
            while queue:
                yield queue.popleft()[1]

    def _next_turn(self) -> None:
        self._turn, self._cost = None, 0.0
        if self.waiting:  # set first, so that an error of one thing keeps no other one waiting
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)
        for number in itertools.count(1):
            waiting = [queue for queue in self._queues if queue]
            if self._cost >= self._most or not waiting:
                break
            queue = waiting[0] if number % OLDEST else min(waiting, key=lambda each: each[0][0])
            self._cost += self._handle(queue.popleft()[1])
