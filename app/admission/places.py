"""What an image takes behind the fair line, and how much of the server its client holds."""

from dataclasses import dataclass
from enum import Enum


class Share(Enum):
    """How much of the server the client of an image holds at this moment."""

    SMALL = 0
    LARGE = 1
    """Most of the images in flight, but no other client wants something."""
    BULK = 2
    """Most of the images in flight, while other clients want something or just did."""


def small() -> Share:
    """Return the share of clients that are not bulk."""
    return Share.SMALL


@dataclass(frozen=True, slots=True)
class Place:
    """What an image past the line takes there: its cost in seconds, and whether its client held
    most of all images when it was let through.
    """

    cost: float
    large: bool


class Through:
    """Images past the line, and their work in seconds."""

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
