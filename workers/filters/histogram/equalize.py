"""The equalize filter."""

from typing import ClassVar, Literal

from PIL import ImageOps

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import COUNTS, THROUGH_TABLES, by_pillow, counted
from workers.filters.base import Filter
from workers.filters.lookup_tables import ChannelTables, tables_by_pillow
from workers.kernels.items import Pass, Shape


class Equalize(Filter):
    """Spread the tones of each colour so that all of them are about equally frequent."""

    name: Literal["equalize"] = "equalize"

    example: ClassVar = {"name": "equalize"}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    cpu_bytes_per_pixel: ClassVar = (14, 17)
    passes: ClassVar = (COUNTS[0], Pass("equalize_tables"), THROUGH_TABLES)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.equalize` of uint8 (H, W, C), channel by channel; alpha is
        copied.

        OpenCV's equalizeHist differs from it by up to 27 levels.
        """
        return by_pillow(pixels, ImageOps.equalize)

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables that Pillow makes of the counts of this image."""
        return ChannelTables(tables_by_pillow(pixels, ImageOps.equalize))

    def device_data(self, _shape: Shape) -> bytes:
        """Return room for counts and tables."""
        return counted()
