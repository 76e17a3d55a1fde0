"""The equalize filter."""

from typing import ClassVar, Literal

from PIL import ImageOps

from models.image import Pixels
from workers.filters.base import Filter
from workers.filters.colour import by_pillow


class Equalize(Filter):
    """Spread the tones of each colour so that every one is about as frequent."""

    name: Literal["equalize"] = "equalize"

    example: ClassVar = {"name": "equalize"}
    alpha_rule: ClassVar = "point"

    def apply(self, pixels: Pixels) -> Pixels:
        """Pillow's `ImageOps.equalize`, channel by channel; OpenCV's differs by up to 27."""
        return by_pillow(pixels, ImageOps.equalize)
