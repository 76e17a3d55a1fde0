"""Rows of a decoded picture, boxes that divide them, and pictures of which a part is shown."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from PIL import Image as PillowImage


class Box(NamedTuple):
    """A rectangle of a picture, in pixels, in the order in which Pillow names its sides."""

    left: int
    top: int
    right: int
    bottom: int


class PictureRows(Protocol):
    """A decoded picture as stored, of which rows can be taken."""

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, in pixels."""

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""

    def crop(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""


def boxes(width: int, height: int, most: int, cell: int = 1) -> Iterator[Box]:
    """Yield boxes of at most `most` pixels, in the order in which the pixels are stored.

    Boxes are whole rows, or parts of a row where a row has more pixels. So each box is a piece of
    memory that begins where the box before it ends.

    With a `cell` they consist of whole squares of that side, except at the right and the bottom, so
    a box has the pixels of a square at least. Parts of several rows are possible then.
    """
    rows = min(height, max(1, most // width // cell) * cell)
    columns = min(width, max(1, most // rows // cell) * cell)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield Box(left, top, min(left + columns, width), min(top + rows, height))


SHOWN = "darkroom part"
"""The key of the part of a picture that is shown, a Box, in the `info` of Pillow's images."""


FRAME = "darkroom frame"
"""The key of the first frame of an animated WebP without alpha, a Box, as above."""


class Cropped(NamedTuple):
    """The rows of a part of a picture."""

    rows: PictureRows
    shown: Box

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height of the part, in pixels."""
        return self.shown.right - self.shown.left, self.shown.bottom - self.shown.top

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""
        return self.rows.mode

    def crop(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""
        left, top = self.shown.left, self.shown.top
        moved = Box(box.left + left, box.top + top, box.right + left, box.bottom + top)
        return self.rows.crop(moved)


class Framed(NamedTuple):
    """The rows of a picture that is transparent outside of a frame."""

    rows: PictureRows
    frame: Box

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, in pixels."""
        return self.rows.size

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""
        return "RGBA"

    def crop(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""
        target = PillowImage.new("RGBA", (box.right - box.left, box.bottom - box.top))
        inner = Box(
            max(box.left, self.frame.left),
            max(box.top, self.frame.top),
            min(box.right, self.frame.right),
            min(box.bottom, self.frame.bottom),
        )
        if inner.left < inner.right and inner.top < inner.bottom:
            pixels = self.rows.crop(inner).convert("RGBA")
            target.paste(pixels, (inner.left - box.left, inner.top - box.top))
        return target
