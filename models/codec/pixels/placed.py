"""Pictures of which a part is shown, and pictures that are a part of what is shown."""

from typing import NamedTuple

from PIL import Image as PillowImage

from models.codec.pixels.boxes import Box, Rows

SHOWN = "darkroom part"
"""The key of the part of a picture that is shown, a Box, in the `info` of Pillow's images."""


class Cropped(NamedTuple):
    """The rows of a part of a picture."""

    rows: Rows
    shown: Box

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height of the part, in pixels."""
        return self.shown.right - self.shown.left, self.shown.bottom - self.shown.top

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""
        return self.rows.mode

    def part(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""
        left, top = self.shown.left, self.shown.top
        moved = Box(box.left + left, box.top + top, box.right + left, box.bottom + top)
        return self.rows.part(moved)

    def release(self, pixels: int) -> None:
        """Do nothing: the rows of the picture are longer."""


class Framed(NamedTuple):
    """The rows of a picture that is transparent outside of a frame."""

    rows: Rows
    frame: Box

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, in pixels."""
        return self.rows.size

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""
        return "RGBA"

    def part(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""
        target = PillowImage.new("RGBA", (box.right - box.left, box.bottom - box.top))
        inner = Box(
            max(box.left, self.frame.left),
            max(box.top, self.frame.top),
            min(box.right, self.frame.right),
            min(box.bottom, self.frame.bottom),
        )
        if inner.left < inner.right and inner.top < inner.bottom:
            pixels = self.rows.part(inner).convert("RGBA")
            target.paste(pixels, (inner.left - box.left, inner.top - box.top))
        return target

    def release(self, pixels: int) -> None:
        """Free the memory of the first `pixels` pixels."""
        self.rows.release(pixels)
