"""The fair line: images of all clients wait in it, and each client gets an equal part of the work.

Start-time fair queueing (Goyal, Vin and Cheng, 1996, https://doi.org/10.1145/248157.248171): the
first image of each client is tagged with the virtual time at which it would start if its client had
a fair part, and the image with the smallest tag goes next. A client with one image therefore waits
for what is under way and not for a flood of another client, and a client alone gets everything in
the order of asking. The tag of an image is made when it becomes the first of its client, with what
the one before it is known to cost by then: images of a kind that was never measured would otherwise
all be tagged as if they cost nothing.
"""

import heapq
import time
from collections.abc import Callable

from app.admission.turn import Turn
from app.admission.waiting import ClientQueue, Place, Waiting, never
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded

SHED_EVERY = 0.25
"""Seconds between two searches for images whose turn comes too late."""

SLACK = 1.15
"""Times the predicted wait that must fit before the deadline of an image that waits already."""

LEAST_COST = 1e-6
"""Lowest cost in seconds: images of unknown cost take turns by their number."""

FEW = 64
"""Clients that are remembered although none of their images waits."""


class FairLine:
    """Lets images through to decoding and computing, as many as keep both busy.

    That is `least` images, or as much estimated work as `room()` says, in seconds. What is through
    is served in the order of its arrival, so everything beyond that would only wait behind itself.
    Of images that are bulk at most `most_bulk` are through at a time, because those that have begun
    are not interrupted; the others go before them. `predict` returns how many seconds a number of
    seconds of work takes now.
    """

    def __init__(
        self,
        least: int,
        room: Callable[[], float] = lambda: 0.0,
        predict: Callable[[float], float] = lambda work: 0.0,
        clock: Callable[[], float] = time.monotonic,
        most_bulk: int | None = None,
    ) -> None:
        self._least = least
        self._most_bulk = most_bulk
        self._room = room
        self._predict = predict
        self._clock = clock
        self._virtual = 0.0
        self._clients: dict[str, ClientQueue] = {}
        self._heap: list[tuple[float, int, ClientQueue]] = []
        """The clients with images in line, by the tag of their first one."""
        self._shed_at = 0.0
        self._number = 0
        self._through = self._bulk = 0
        self._work = 0.0

    @property
    def waiting(self) -> int:
        """Images in line, including those whose clients have just left."""
        return sum(len(queue.images) for _, _, queue in self._heap)

    def turn(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        is_bulk: Callable[[], bool] = never,
    ) -> Turn:
        """Wait for the turn of an image that takes `estimate()` seconds; it ends with the block.

        `is_bulk` says whether it is bulk now. Raises Overloaded as soon as it is known that its
        turn comes too late for its deadline.
        """
        return Turn(self, client, estimate, deadline, is_bulk)

    async def take(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        is_bulk: Callable[[], bool] = never,
    ) -> Place:
        """Wait for a turn; return the argument with which `leave` must be called at its end."""
        queue = self._clients.get(client)
        if queue is None:
            queue = self._clients[client] = ClientQueue()
        if not self._heap and self._fits():
            bulk = self._most_bulk is not None and is_bulk()
            if not (bulk and self._bulk_is_full()):
                queue.start = max(self._virtual, queue.finish)
                return self._enter(queue, estimate, bulk)
        self._number += 1
        waiting = Waiting(self._number, estimate, deadline, is_bulk)
        queue.images.append(waiting)
        if len(queue.images) == 1:
            queue.start = max(self._virtual, queue.finish)
            self._push(queue)
        self._let_through()
        self._shed()
        try:
            await waiting.turn
        except BaseException:
            if waiting.place is not None:  # it was let through and cancelled at the same time
                self.leave(waiting.place)
            raise
        assert waiting.place is not None
        return waiting.place

    def leave(self, place: Place) -> None:
        """End a turn, and give turns to waiting images."""
        self._through -= 1
        self._bulk -= place.bulk
        self._work = self._work - place.cost if self._through else 0.0
        self._let_through()
        if self._heap:
            self._shed()
        elif not self._through:
            self._virtual = 0.0
            self._clients.clear()  # memory follows the present load, not the past
        if len(self._clients) > 2 * (len(self._heap) + self._through) + FEW:
            late = self._virtual
            self._clients = {
                name: each
                for name, each in self._clients.items()
                if each.images or each.finish > late
            }

    def come_back(self, place: Place) -> None:
        """Count an image again that left its place for a while, also where that is one too many."""
        self._through += 1
        self._bulk += place.bulk
        self._work += place.cost

    def _fits(self) -> bool:
        return self._through < self._least or self._work < self._room()

    def _bulk_is_full(self) -> bool:
        return self._most_bulk is not None and self._bulk >= self._most_bulk

    def _enter(self, queue: ClientQueue, estimate: Callable[[], float], bulk: bool) -> Place:
        """Let the first image of a client through."""
        cost = max(estimate(), LEAST_COST)
        self._virtual = max(self._virtual, queue.start)
        queue.finish = queue.start + cost
        self._through += 1
        self._bulk += bulk
        self._work += cost
        return Place(cost, bulk)

    def _push(self, queue: ClientQueue) -> None:
        heapq.heappush(self._heap, (queue.start, queue.images[0].number, queue))

    def _let_through(self) -> None:
        """Give turns to waiting images, but only as many to bulk as it may have."""
        held: list[ClientQueue] = []
        while self._heap and self._fits():
            _, _, queue = heapq.heappop(self._heap)
            images = queue.images
            while images and images[0].turn.done():  # their requests have ended
                images.popleft()
            if not images:
                continue
            bulk = self._most_bulk is not None and images[0].is_bulk()
            if bulk and self._bulk_is_full():
                held.append(queue)
                continue
            first = images.popleft()
            first.place = self._enter(queue, first.estimate, bulk)
            first.turn.set_result(None)
            if images:
                queue.start = queue.finish
                self._push(queue)
        for queue in held:
            self._push(queue)

    def _shed(self) -> None:
        """Refuse images whose turn is predicted to come too late; do so a few times a second."""
        now = self._clock()
        if now < self._shed_at:
            return
        self._shed_at = now + SHED_EVERY
        ahead = self._work
        for each, cost in self._in_order():
            wait = self._predict(ahead + cost)
            if wait * SLACK > each.deadline.remaining(now):
                each.turn.set_exception(_too_late(wait))
            else:
                ahead += cost
        queues = [queue for _, _, queue in self._heap]
        self._heap.clear()
        for queue in queues:
            for _ in range(len(queue.images)):
                each = queue.images.popleft()
                if not each.turn.done():
                    queue.images.append(each)
            if queue.images:
                self._push(queue)

    def _in_order(self) -> list[tuple[Waiting, float]]:
        """Return the images in the order in which they will be let through, with their costs."""
        tagged: list[tuple[float, int, Waiting, float]] = []
        for start, _, queue in self._heap:
            tag = start
            for each in queue.images:
                if not each.turn.done():
                    cost = each.estimate()
                    tagged.append((tag, each.number, each, cost))
                    tag += cost
        return [(each, cost) for _, _, each, cost in sorted(tagged, key=lambda each: each[:2])]


def _too_late(wait: float) -> Overloaded:
    return Overloaded(
        f"the work before this image takes about {wait:.1f} seconds, longer than its deadline "
        "allows; try again later",
        retry_after=wait,
        reason="deadline",
    )
