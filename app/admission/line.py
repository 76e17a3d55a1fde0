"""The fair line: images of all clients wait in it, and each client gets an equal part of the work.

Start-time fair queueing (Goyal, Vin and Cheng, 1996, https://doi.org/10.1145/248157.248171): each
client is tagged with the virtual time at which its next image would start if the client had a fair
part, and the client with the smallest tag goes next. A client with one image therefore waits for
what is under way and not for a flood of another client. The images of one client keep their order.
The tag is made when the image before it is let through, with what that one is expected to cost by
then.
"""

import asyncio
import heapq
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from models.domain.deadline import Deadline
from models.domain.errors import Overloaded

FEW = 64
"""Clients that are remembered although none of their images waits."""

LEAST_COST = 1e-6
"""Lowest cost in seconds of an image in the tags of its client."""

DEPTH = 8
"""Times `room()` that the images of a client alone may take. Images of other requests of that
client wait for them, so there is a bound; with 0.1 s an image on two cores it is 32 images."""


class Share(Enum):
    """How much of the server the client of an image holds at this moment."""

    SMALL = 0
    LARGE = 1
    """Most of the images in flight, but no other client wants something."""
    FILLING = 3
    """As LARGE, and the image is computed sooner in a full batch."""
    BULK = 2
    """Most of the images in flight, while other clients want something or just did."""


def small() -> Share:
    """Return the share of clients that are not bulk."""
    return Share.SMALL


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What an image past the line takes there: its cost in seconds as it was expected then, and
    whether its client held most of all images when it was let through.
    """

    cost: float
    large: bool


class Through:
    """A number of images, and their work in seconds."""

    __slots__ = ("images", "work")

    def __init__(self) -> None:
        self.images = 0
        self.work = 0.0

    def add(self, place: Place) -> None:
        """Count one more."""
        self.images += 1
        self.work += place.cost

    def remove(self, place: Place) -> None:
        """Count one less; nothing is left of rounding when all are gone."""
        self.images -= 1
        self.work = self.work - place.cost if self.images else 0.0


class Places:
    """The images past the line, and whether one more may pass it.

    `least` images may always be there, or as many as together take less than `room()` seconds.
    Those of a client that holds most do not count for images of clients with a small share; while
    others want something, there are at most `most_bulk` of them. A client without others beside it
    fills its batches: it may have `alone` images there, which take at most `DEPTH` times `room()`,
    of work that gains from batches. Others would only hold their pixels for longer.
    """

    __slots__ = ("_alone", "_large", "_least", "_most_bulk", "_small", "room")

    def __init__(
        self, least: int, room: Callable[[], float], most_bulk: int, alone: int = 0
    ) -> None:
        self._least = least
        self._most_bulk = most_bulk
        self.room = room
        self._alone = alone
        self._small, self._large = Through(), Through()

    def set_images(self, least: int, alone: int) -> None:
        """Have room for these numbers of images from now on, and for as many of a bulk client."""
        self._least = self._most_bulk = least
        self._alone = alone

    @property
    def images(self) -> int:
        """Return how many images are past the line."""
        return self._small.images + self._large.images

    @property
    def work(self) -> float:
        """Return their seconds of work."""
        return self._small.work + self._large.work

    @property
    def bulk_fits(self) -> bool:
        """Return whether one more image of a client that holds most may be there beside others."""
        return self._large.images < self._most_bulk

    def fits(self, share: Share) -> bool:
        """Return whether an image of a client with this share may pass now."""
        images, work = self._small.images, self._small.work
        if share is not Share.SMALL:
            images, work = images + self._large.images, work + self._large.work
            if share is Share.BULK and not self.bulk_fits:
                return False
        if images < self._least or work < (room := self.room()):
            return True
        return share is Share.FILLING and images < self._alone and work < DEPTH * room

    def is_large(self, share: Share, *, others: bool) -> bool:
        """Return whether an image counts as one of a client that holds most.

        Those of a client alone do while `others` of it wait in line, or if they pass only to fill
        its batches.
        """
        if share in (Share.LARGE, Share.FILLING):
            full = self.images >= self._least and self.work >= self.room()
            return others or full or self._large.images > 0
        return share is Share.BULK

    @property
    def some_large(self) -> bool:
        """Return whether there are images of a client that holds most."""
        return self._large.images > 0

    def add(self, place: Place) -> None:
        """Count an image as past the line."""
        (self._large if place.large else self._small).add(place)

    def remove(self, place: Place) -> None:
        """Count it no more."""
        (self._large if place.large else self._small).remove(place)


@dataclass(slots=True, eq=False)
class _Waiting:
    """An image in line; `place` is set together with the result of `turn`."""

    number: int
    estimate: Callable[[], float]
    deadline: Deadline
    share: Callable[[], Share]
    place: Place | None = None
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class _Client:
    """The images of one client that wait, in their order.

    `start` is the virtual time at which its next image starts, `finish` the one at which the last
    image that was let through ends. `live` counts images whose requests have not ended.
    """

    __slots__ = ("finish", "images", "in_line", "live", "start")

    def __init__(self) -> None:
        self.start = self.finish = 0.0
        self.in_line = False
        self.live = 0
        self.images: deque[_Waiting] = deque()

    def first(self, now: float, stay: Callable[[float], float]) -> _Waiting | None:
        """Return the image that is to be served next, None if there is none.

        Images whose turn comes too late for their deadlines are refused on the way: they would be
        computed in vain, at the cost of images that are in time.
        """
        while self.images:
            first = self.images[0]
            if not first.turn.done():
                cost, left = stay(first.estimate()), first.deadline.remaining(now)
                if cost <= left:
                    return first
                self.live -= 1
                first.turn.set_exception(_too_late(cost, left))
            self.images.popleft()
        return None


class FairLine:
    """Lets images through to decoding and computing, as many as keep both busy.

    That is `least` images, or as much expected work as `room()` says, in seconds. What is through
    is served in the order of its arrival, so everything beyond that would only wait behind itself.
    Images of clients with a small share do not wait for those of a client that holds most, because
    behind the line they go before them. Images that have begun are not interrupted: while other
    clients want something, at most `most_bulk` of the client that holds most are through. A client
    alone may have `alone` images through, which fill its batches where images take long.
    """

    def __init__(
        self,
        least: int,
        room: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> None:
        self._places = Places(least, room, least if most_bulk is None else most_bulk, alone)
        self._clock = clock
        self.stay: Callable[[float], float] = lambda cost: cost
        """Returns how long an image of a cost will be past the line."""
        self._virtual = 0.0
        self._clients: dict[str, _Client] = {}
        self._heap: list[tuple[float, int, _Client]] = []
        """The clients with images in line, by their tags."""
        self.behind: FairLine | None = None
        """Where images in the background wait, if they yield to all others."""
        self._number = 0

    def set_images(self, least: int, alone: int) -> None:
        """Let this many images through, and this many of a client alone."""
        self._places.set_images(least, alone)

    @property
    def waiting(self) -> int:
        """Images in line."""
        return sum(client.live for _, _, client in self._heap)

    @property
    def past(self) -> float:
        """Seconds of work past the line."""
        return self._places.work

    def waits(self, client: str) -> bool:
        """Return whether images of a client wait, or passed the line only to fill its batches."""
        found = self._clients.get(client)
        return found is not None and (found.live > 0 or self._places.some_large)

    async def take(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        share: Callable[[], Share] = small,
    ) -> Place:
        """Wait for the turn of an image; return the argument with which `leave` must be called.

        `estimate` returns its seconds of work, and `share` how much its client holds now. Raises
        Overloaded if the turn comes too late for its deadline.
        """
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = _Client()
        # Nothing waits: the image passes without a future. Its tag is set as if it had been queued,
        # or the next image of its client would be served too early.
        if not self._heap and self._places.fits(held := share()):
            found.start = max(self._virtual, found.finish)
            return self._enter(found, estimate(), held)
        self._number += 1
        waiting = _Waiting(self._number, estimate, deadline, share)
        found.images.append(waiting)
        found.live += 1
        if not found.in_line:
            found.start = max(self._virtual, found.finish)
            self._push(found, waiting)
        self._let_through()
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.place is not None:  # it was let through and cancelled at the same time
                self.leave(waiting.place)
            elif waiting.turn.cancelled():
                found.live -= 1
                self._let_through()  # it may have kept others of a smaller share waiting
            raise
        assert waiting.place is not None
        return waiting.place

    def leave(self, place: Place) -> None:
        """End a turn, and give turns to waiting images."""
        self._places.remove(place)
        self._let_through()
        through = self._places.images
        if not self._heap and not through:
            self._forget(math.inf)  # memory follows the present load, not the past
        if len(self._clients) > 2 * (len(self._heap) + through) + FEW:
            self._forget(self._virtual)

    def _forget(self, late: float) -> None:
        """Forget clients that have nothing here, and whose last image ended before `late`."""
        self._clients = {
            name: each for name, each in self._clients.items() if each.live or each.finish > late
        }
        if not self._clients:
            self._virtual = 0.0

    def _enter(self, client: _Client, seconds: float, share: Share) -> Place:
        """Let the next image of a client through."""
        large = self._places.is_large(share, others=client.live > 1)
        cost = max(seconds, LEAST_COST)
        self._virtual = max(self._virtual, client.start)
        client.finish = client.start + cost
        place = Place(cost, large)
        self._places.add(place)
        return place

    def _push(self, client: _Client, first: _Waiting) -> None:
        client.in_line = True
        heapq.heappush(self._heap, (client.start, first.number, client))

    def _let_through(self) -> None:
        """Give turns to waiting images, in the order of their clients' tags.

        A client that holds most is passed over while as many of its images as may are through.
        """
        passed_over: list[tuple[_Client, _Waiting]] = []
        now = self._clock()
        while self._heap and self._places.fits(Share.SMALL):
            client = self._heap[0][2]
            first = client.first(now, self.stay)
            share = Share.SMALL if first is None else first.share()
            fits = self._places.fits(share)
            if not fits and self._places.bulk_fits:
                break
            heapq.heappop(self._heap)
            client.in_line = False
            if first is None:  # the requests of all its images have ended
                continue
            if not fits:
                passed_over.append((client, first))
                continue
            first.place = self._enter(client, first.estimate(), share)
            first.turn.set_result(None)
            client.images.popleft()
            client.live -= 1
            client.start = client.finish
            if (following := client.first(now, self.stay)) is not None:
                self._push(client, following)
        for client, first in passed_over:
            self._push(client, first)


def _too_late(cost: float, left: float) -> Overloaded:
    return Overloaded(
        f"the turn of this image came {left:.1f} seconds before its deadline, and its work takes "
        f"about {max(cost, left + 0.1):.1f}; try again later or allow more time (X-Deadline-Ms)",
        retry_after=max(1.0, cost),
        reason="deadline",
    )
