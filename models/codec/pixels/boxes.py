"""Divide a picture into boxes that are converted or copied one after the other."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from PIL import Image as PillowImage


class Box(NamedTuple):
    """A rectangle of a picture, in pixels, in the order in which Pillow names its sides."""

    left: int
    top: int
    right: int
    bottom: int


class Rows(Protocol):
    """A decoded picture as stored, of which rows can be taken."""

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, in pixels."""

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""

    def part(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""

    def release(self, pixels: int) -> None:
        """Free the memory of the first `pixels` pixels, as far as possible; none is read again."""


def boxes(width: int, height: int, most: int, cell: int = 1) -> Iterator[Box]:
    """Yield boxes of at most `most` pixels, in the order in which the pixels are stored.

    They are whole rows, or parts of one row where a row has more pixels than that. So each is one
    piece of memory that begins where the one before it ends.

    With a `cell` they consist of whole squares of that side, except at the right and the bottom, so
    a box has the pixels of one square at least. Parts of several rows are possible then.
    """
    rows = min(height, max(1, most // width // cell) * cell)
    columns = min(width, max(1, most // rows // cell) * cell)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield Box(left, top, min(left + columns, width), min(top + rows, height))
