"""The fair line: admitted images of all clients wait in it once, before decoding and computing."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from app.admission.backlog import Backlog
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from models.domain.fair_queue import FairQueue, Lack
from models.domain.job import Lane

HORIZON = 0.1
"""Seconds of work that may be past the line, where clients do not take turns any more."""


class Place(NamedTuple):
    """What an image past the line takes there: its lane when it passed, and its expected work."""

    lane: Lane
    work: int


@dataclass(slots=True)
class Waiting:
    """An image that asks for a place.

    `standing` returns the lane of its client now, and whether others want something beside it.
    """

    work: int
    deadline: Deadline
    standing: Callable[[], tuple[Lane, bool]]
    in_line: bool = False


class FairLine:
    """Lets as many images through as keep decoding and computing busy; clients take turns.

    That is `least` images, or the work of `HORIZON` seconds. What is through is served in the order
    of its arrival, so everything beyond that would only wait behind itself.

    Images of a client that holds most, in the lane for bulk, do not count for those of others,
    because behind the line they go after them. Images that have begun are not interrupted: beside
    others at most `most_bulk` of them are through. Alone the client may have `alone` images there,
    which fill its batches. Images of jobs have `least` places of their own.
    """

    def __init__(
        self,
        least: int,
        backlog: Backlog,
        clock: Callable[[], float],
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> None:
        self._backlog = backlog
        self._clock = clock
        self.set_images(least, alone)
        self._most_bulk = least if most_bulk is None else most_bulk
        self._images = dict.fromkeys(Lane, 0)
        self._work = dict.fromkeys(Lane, 0)
        self._queue = FairQueue[Waiting, Place](self._attempt, self._remove)

    def set_images(self, least: int, alone: int) -> None:
        """Let this many images through, and this many of a client alone."""
        self._least = self._most_bulk = least
        self._alone = max(least, alone)

    @property
    def waiting(self) -> int:
        """Return how many images are in line."""
        return len(self._queue)

    async def take(self, client: Hashable, image: Waiting) -> Place:
        """Wait for the turn of an image; return the argument with which `leave` must be called.

        Raises Overloaded if the turn comes too late for the deadline: the image would be computed
        in vain, at the cost of images that are in time.
        """
        place = self._queue.take_now(client, image)
        if place is None:
            image.in_line = True
            place = await self._queue.take(client, image, image.work)
        return place

    def leave(self, place: Place) -> None:
        """End a turn, and give turns to waiting images."""
        self._remove(place)
        self._queue.wake()

    def _remove(self, place: Place) -> None:
        self._images[place.lane] -= 1
        self._work[place.lane] -= place.work

    def _attempt(self, image: Waiting, _since: int) -> Place | Lack:
        if image.in_line:
            left, own = image.deadline.remaining(self._clock()), self._backlog.seconds(image.work)
            if left < own:
                raise Overloaded(
                    f"the turn of this image came {left:.1f} seconds before its deadline, and its "
                    f"work takes about {max(own, left + 0.1):.1f}; try again later or allow more "
                    "time (X-Deadline-Ms)",
                    retry_after=max(1.0, own),
                    reason="deadline",
                )
        lane, contended = image.standing()
        if (lack := self._lack(lane, contended)) is not None:
            return lack
        self._images[lane] += 1
        self._work[lane] += image.work
        return Place(lane, image.work)

    def _lack(self, lane: Lane, contended: bool) -> Lack | None:
        images, work, least = self._images[lane], self._work[lane], self._least
        if lane is Lane.BULK:
            if not contended:
                least = self._alone
            elif images >= self._most_bulk:
                return Lack.OWN
            images += self._images[Lane.INTERACTIVE]
            work += self._work[Lane.INTERACTIVE]
        if images < least or work < HORIZON * self._backlog.speed():
            return None
        return Lack.OWN if lane is Lane.BACKGROUND else Lack.ALL
