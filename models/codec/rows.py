"""Rows of a decoded picture, boxes that divide them, and pictures of which a part is shown."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from PIL import Image as PillowImage


class Box(NamedTuple):
    """A rectangle of a picture, in pixels, in the order in which Pillow names its sides."""

    left: int
    top: int
    right: int
    bottom: int


class PictureRows(NamedTuple):
    """A decoded picture as stored: its size in pixels, Pillow's name for the pixels, and the
    function that returns the pixels in a box.
    """

    size: tuple[int, int]
    mode: str
    crop: Callable[[Box], PillowImage.Image]


def rows_of(image: PillowImage.Image) -> PictureRows:
    """Return the rows of a loaded image; the box of all pixels is the image, without a copy."""
    whole = (0, 0, *image.size)
    return PictureRows(
        image.size, image.mode, lambda box: image if box == whole else image.crop(box)
    )


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


def cropped(rows: PictureRows, shown: Box) -> PictureRows:
    """Return the rows of a part of a picture."""

    def crop(box: Box) -> PillowImage.Image:
        left, top = shown.left, shown.top
        return rows.crop(Box(box.left + left, box.top + top, box.right + left, box.bottom + top))

    return PictureRows((shown.right - shown.left, shown.bottom - shown.top), rows.mode, crop)


def framed(rows: PictureRows, frame: Box) -> PictureRows:
    """Return the rows of a picture that is transparent outside of a frame."""

    def crop(box: Box) -> PillowImage.Image:
        target = PillowImage.new("RGBA", (box.right - box.left, box.bottom - box.top))
        inner = Box(
            max(box.left, frame.left),
            max(box.top, frame.top),
            min(box.right, frame.right),
            min(box.bottom, frame.bottom),
        )
        if inner.left < inner.right and inner.top < inner.bottom:
            pixels = rows.crop(inner).convert("RGBA")
            target.paste(pixels, (inner.left - box.left, inner.top - box.top))
        return target

    return PictureRows(rows.size, "RGBA", crop)
