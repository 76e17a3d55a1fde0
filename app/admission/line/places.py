"""What images take past the fair line, and how much of the server their clients hold."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


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
    """What an image past the line takes there: its cost in seconds as it was known then, and
    whether its client held most of all images when it was let through.

    `estimate` returns what the cost is known to be now. `away` are those of its client that are
    left for a while.
    """

    cost: float
    large: bool
    estimate: Callable[[], float]
    away: set["Place"]


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


DEPTH = 8
"""Times `room()` that the images of a client alone may take. Images of other requests of that
client wait for them, so there is a bound; with 0.1 s an image on two cores it is 32 images."""


class Places:
    """The images past the line, and whether one more may pass it.

    `least` images may always be there, or as many as together take less than `room()` seconds.
    Those of a client that holds most do not count for images of clients with a small share; while
    others want something, there are at most `most_bulk` of them. A client without others beside it
    fills its batches: it may have `alone` images there, which take at most `DEPTH` times `room()`,
    of work that gains from batches. Others would only hold their pixels for longer.
    """

    __slots__ = ("_alone", "_large", "_least", "_most_bulk", "_room", "_small")

    def __init__(
        self, least: int, room: Callable[[], float], most_bulk: int, alone: int = 0
    ) -> None:
        self._least = least
        self._most_bulk = most_bulk
        self._room = room
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
        if images < self._least or work < (room := self._room()):
            return True
        return share is Share.FILLING and images < self._alone and work < DEPTH * room

    def is_large(self, share: Share, *, others: bool) -> bool:
        """Return whether an image counts as one of a client that holds most.

        Those of a client alone do while `others` of it wait in line, or if they pass only to fill
        its batches.
        """
        if share in (Share.LARGE, Share.FILLING):
            full = self.images >= self._least and self.work >= self._room()
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
