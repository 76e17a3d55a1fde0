"""Who goes next: images of all clients wait in one line, from which each client gets equal parts.

Start-time fair queueing (Goyal, Vin and Cheng, 1996, https://doi.org/10.1145/248157.248171): each
image is tagged with the virtual time at which it would start if its client had a fair part, and the
smallest tag goes next. A client with one image therefore waits for what is under way and not for a
flood of another client, and a client alone gets everything in the order of asking.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from models.domain.deadline import Deadline
from models.domain.errors import Overloaded

SHED_EVERY = 0.25
"""Seconds between two looks for images whose turn comes too late."""

SLACK = 1.15
"""Times the predicted wait that must fit before the deadline of an image that waits already."""

LEAST_COST = 1e-6
"""Seconds: work that seems to cost nothing takes turns by number."""


@dataclass(order=True, slots=True)
class _Waiting:
    """An image in line; the smallest tag goes first, the older one of two."""

    start: float
    number: int
    client: str = field(compare=False)
    cost: float = field(compare=False)
    estimate: Callable[[], float] = field(compare=False)
    deadline: Deadline = field(compare=False)
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future(), compare=False
    )


class FairLine:
    """Lets images through to decoding and computing, as many as keep both busy.

    That is `least` images, or as much estimated work as `room()` says, in seconds. What is through
    is served in the order of its arrival, so everything beyond that would only wait behind itself.
    `predict` says how long so many seconds of work take now.
    """

    def __init__(
        self,
        least: int,
        room: Callable[[], float] = lambda: 0.0,
        predict: Callable[[float], float] = lambda work: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._least = least
        self._room = room
        self._predict = predict
        self._clock = clock
        self._virtual = 0.0
        self._finish: dict[str, float] = {}
        self._waiting: list[_Waiting] = []
        self._shed_at = 0.0
        self._number = 0
        self._through = 0
        self._work = 0.0

    @property
    def waiting(self) -> int:
        """Images in line, those whose clients have just left among them."""
        return len(self._waiting)

    def turn(self, client: str, estimate: Callable[[], float], deadline: Deadline) -> "Turn":
        """Wait for the turn of an image that takes `estimate()` seconds; it ends with the block.

        Raises Overloaded as soon as it is known that its turn comes too late for its deadline.
        """
        return Turn(self, client, estimate, deadline)

    async def take(self, client: str, estimate: Callable[[], float], deadline: Deadline) -> float:
        """Wait for a turn; return what `leave` is to be called with when it ends."""
        cost = max(estimate(), LEAST_COST)
        start = max(self._virtual, self._finish.get(client, 0.0))
        self._finish[client] = start + cost
        if not self._waiting and self._fits():
            self._enter(start, cost)
            return cost
        waiting = _Waiting(start, self._number, client, cost, estimate, deadline)
        await self._wait(waiting)
        return waiting.cost

    def _fits(self) -> bool:
        return self._through < self._least or self._work < self._room()

    def _enter(self, start: float, cost: float) -> None:
        self._virtual = max(self._virtual, start)
        self._through += 1
        self._work += cost

    def leave(self, cost: float) -> None:
        """End a turn; those that wait get theirs."""
        self._through -= 1
        self._work = self._work - cost if self._through else 0.0
        while self._waiting and self._fits():
            first = heapq.heappop(self._waiting)
            if not first.turn.done():
                first.cost = max(first.estimate(), LEAST_COST)  # may have been unknown before
                self._enter(first.start, first.cost)
                first.turn.set_result(None)
        if self._waiting:
            self._shed()
        if not self._waiting and not self._through:
            self._virtual = 0.0
            self._finish.clear()  # memory follows the present load, not the past
        elif len(self._finish) > 2 * (len(self._waiting) + self._through) + 64:
            late = self._virtual
            self._finish = {name: at for name, at in self._finish.items() if at > late}

    async def _wait(self, waiting: _Waiting) -> None:
        self._number += 1
        heapq.heappush(self._waiting, waiting)
        self._shed()
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.client in self._finish:  # the next image of this client need not wait for it
                self._finish[waiting.client] -= waiting.cost
            turn = waiting.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(waiting.cost)
            raise

    def _shed(self) -> None:
        """Refuse those whose turn comes too late by what is known now, a few times a second."""
        now = self._clock()
        if now < self._shed_at:
            return
        self._shed_at = now + SHED_EVERY
        ahead, left = self._work, []
        for each in sorted(self._waiting):
            wait = self._predict(ahead + each.estimate())
            if each.turn.done():
                continue
            if wait * SLACK > each.deadline.remaining(now):
                each.turn.set_exception(_too_late(wait))
                continue
            ahead += each.estimate()
            left.append(each)
        self._waiting = left  # sorted, hence a heap


class Turn:
    """One turn, as an asynchronous context manager: without generators, for each image has one."""

    __slots__ = ("_asked", "_cost", "_line")

    def __init__(
        self, line: FairLine, client: str, estimate: Callable[[], float], deadline: Deadline
    ) -> None:
        self._line = line
        self._asked = client, estimate, deadline

    async def __aenter__(self) -> None:
        self._cost = await self._line.take(*self._asked)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._line.leave(self._cost)


def _too_late(wait: float) -> Overloaded:
    return Overloaded(
        f"the work before this image takes about {wait:.1f} seconds, longer than its deadline "
        "allows; try again later",
        retry_after=wait,
        reason="deadline",
    )
