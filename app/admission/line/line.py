"""The fair line: images of all clients wait in it, and each client gets an equal part of the work.

Start-time fair queueing (Goyal, Vin and Cheng, 1996, https://doi.org/10.1145/248157.248171): each
client is tagged with the virtual time at which its next image would start if the client had a fair
part, and the client with the smallest tag goes next. A client with one image therefore waits for
what is under way and not for a flood of another client. Which image of a client is its next one is
explained in `client_queue.py`. The tag is made when the image before it is let through, with what
that one is known to cost by then: images of a kind that was never measured would otherwise all be
tagged as if they cost nothing.
"""

import heapq
import math
import time
from collections.abc import Callable, Hashable

from app.admission.line.client_queue import ClientQueue
from app.admission.line.places import Place, Places, Share, small
from app.admission.line.shedding import EVERY, SLACK, Tagged, shed
from app.admission.line.turn import Turn
from app.admission.line.waiting import LEAST_COST, Waiting, rounded
from models.domain.deadline import Deadline

FEW = 64
"""Clients that are remembered although none of their images waits."""


class FairLine:
    """Lets images through to decoding and computing, as many as keep both busy.

    That is `least` images, or as much estimated work as `room()` says, in seconds. What is through
    is served in the order of its arrival, so everything beyond that would only wait behind itself.
    Images of clients with a small share do not wait for those of a client that holds most, because
    behind the line they go before them. Images that have begun are not interrupted: while other
    clients want something, at most `most_bulk` of the client that holds most are through. A client
    alone may have `alone` images through, which fill its batches where images take long. `predict`
    returns how many seconds a number of seconds of work takes now.
    """

    def __init__(
        self,
        least: int,
        room: Callable[[], float] = lambda: 0.0,
        predict: Callable[[float], float] = lambda _work: 0.0,
        clock: Callable[[], float] = time.monotonic,
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> None:
        self._places = Places(least, room, least if most_bulk is None else most_bulk, alone)
        self._predict = predict
        self._clock = clock
        self._virtual = 0.0
        self._clients: dict[str, ClientQueue] = {}
        self._heap: list[Tagged] = []
        """The clients with images in line, by their tags."""
        self._shed_at = 0.0
        self.behind: FairLine | None = None
        """Where images in the background wait, if they yield to all others."""
        self._number = 0

    def set_images(self, least: int, alone: int) -> None:
        """Let this many images through, and this many of a client alone."""
        self._places.set_images(least, alone)

    @property
    def waiting(self) -> int:
        """Images in line, including those whose clients have just left."""
        return sum(queue.live for _, _, queue in self._heap)

    @property
    def past(self) -> float:
        """Seconds of work past the line."""
        return self._places.work

    def waits(self, client: str) -> bool:
        """Return whether images of a client wait, or passed the line only to fill its batches."""
        queue = self._clients.get(client)
        return queue is not None and (queue.live > 0 or self._places.some_large)

    def overtaking(self, client: str, cost: float) -> float | None:
        """Return the seconds until a new image that costs `cost` seconds would end.

        The result is None if the order of asking says that: if the image is not much cheaper than
        those of its client that wait, here or for memory, or if one would be overdue before. Even
        then it does not wait for those that wait for memory.
        """
        queue = self._clients.get(client)
        before = None if queue is None else queue.before(cost)
        if queue is None or before is None:
            return None
        wait = self._wait(queue, before + cost)
        if self._clock() + SLACK * wait < queue.overdue_from():
            return wait
        return self._wait(queue, queue.in_line_now() + cost) if queue.away else None

    def turn(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        share: Callable[[], Share] = small,
        measured: Callable[[], float] | None = None,
        group: Callable[[], Hashable] | None = None,
    ) -> Turn:
        """Wait for the turn of an image that takes `estimate()` seconds; it ends with the block.

        `share` returns how much its client holds now, and `measured` the seconds as far as they
        were measured, 0 for unknown kinds; `group`, what images have in common that cost the same.
        Raises Overloaded as soon as it is known that its turn comes too late for its deadline.
        """
        return Turn(self, client, estimate, deadline, share, measured or estimate, group)

    async def take(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        share: Callable[[], Share] = small,
        measured: Callable[[], float] | None = None,
        group: Callable[[], Hashable] | None = None,
    ) -> Place:
        """Wait for a turn; return the argument with which `leave` must be called at its end."""
        queue = self._clients.get(client)
        if queue is None:
            queue = self._clients[client] = ClientQueue()
        # Nothing waits: the image passes without a future. Its tag is set as if it had been queued,
        # or the next image of its client would be served too early.
        if not self._heap and self._places.fits(held := share()):
            queue.start = max(self._virtual, queue.finish)
            return self._enter(queue, estimate, held)
        self._number += 1
        measured = measured or estimate
        kind = group() if group else rounded(measured())
        waiting = Waiting(self._number, estimate, deadline, share, measured, kind, estimate())
        self._join(queue, waiting)
        self._let_through()
        self._shed()
        try:
            await waiting.turn
        except BaseException:
            if waiting.place is None:
                queue.dropped(waiting)
                self._let_through()  # it may have kept others of a smaller share waiting
            else:  # it was let through and cancelled at the same time
                self.leave(waiting.place)
            raise
        assert waiting.place is not None
        return waiting.place

    def _join(self, queue: ClientQueue, waiting: Waiting) -> None:
        """Let an image wait, and its client take turns."""
        now = self._clock()
        wait = self._wait(queue, queue.work + waiting.cost)
        queue.add(waiting, now, waiting.deadline.remaining(now) - SLACK * wait)
        if not queue.in_line:
            queue.start = max(self._virtual, queue.finish)
            self._push(queue, waiting)

    def leave(self, place: Place) -> None:
        """End a turn, and give turns to waiting images."""
        self._places.remove(place)
        self._let_through()
        through = self._places.images
        if self._heap:
            self._shed()
        elif not through:
            self._forget(math.inf)  # memory follows the present load, not the past
        if len(self._clients) > 2 * (len(self._heap) + through) + FEW:
            self._forget(self._virtual)

    def suspend(self, place: Place) -> None:
        """Give an image's place to others for a while; `resume` must be called then."""
        place.away.add(place)
        self.leave(place)

    def resume(self, place: Place) -> None:
        """Count an image again that left its place for a while, also where that is one too many."""
        place.away.discard(place)
        self._places.add(place)

    def _forget(self, late: float) -> None:
        """Forget clients that have nothing here, and whose last image ended before `late`."""
        self._clients = {
            name: each
            for name, each in self._clients.items()
            if each.live or each.away or each.finish > late
        }
        if not self._clients:
            self._virtual = 0.0

    def _wait(self, queue: ClientQueue, work: float) -> float:
        """Return the seconds until `work` of a client in line is completed: all take turns."""
        clients = len(self._heap) + (not queue.in_line)
        return self._predict(self.past + work * clients)

    def _enter(self, queue: ClientQueue, estimate: Callable[[], float], share: Share) -> Place:
        """Let the next image of a client through."""
        large = self._places.is_large(share, others=queue.live > 1)
        cost = max(estimate(), LEAST_COST)
        self._virtual = max(self._virtual, queue.start)
        queue.finish = queue.start + cost
        place = Place(cost, large, estimate, queue.away)
        self._places.add(place)
        return place

    def _push(self, queue: ClientQueue, first: Waiting) -> None:
        queue.in_line = True
        heapq.heappush(self._heap, (queue.start, first.number, queue))

    def _let_through(self) -> None:
        """Give turns to waiting images, in the order of their clients' tags.

        A client that holds most is passed over while as many of its images as may are through.
        """
        passed_over: list[tuple[ClientQueue, Waiting]] = []
        now = self._clock()
        while self._heap and self._places.fits(Share.SMALL):
            queue = self._heap[0][2]
            first = queue.first(now)
            share = Share.SMALL if first is None else first.share()
            fits = self._places.fits(share)
            if not fits and self._places.bulk_fits:
                break
            heapq.heappop(self._heap)
            queue.in_line = False
            if first is None:  # the requests of all its images have ended
                continue
            if not fits:
                passed_over.append((queue, first))
                continue
            first.place = self._enter(queue, first.estimate, share)
            first.turn.set_result(None)
            queue.served(first)
            queue.start = queue.finish
            if (following := queue.first(now)) is not None:
                self._push(queue, following)
        for queue, first in passed_over:
            self._push(queue, first)

    def _shed(self) -> None:
        """Refuse images whose turn is predicted to come too late; do so a few times a second."""
        now = self._clock()
        if now < self._shed_at:
            return
        self._shed_at = now + EVERY
        shed(self._heap, self.past, self._predict, now)
