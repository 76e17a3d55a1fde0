"""The autocontrast filter."""

from functools import partial
from typing import ClassVar, Literal

from PIL import ImageOps
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import COUNTS, THROUGH_TABLES, by_pillow, counted
from workers.filters.base import Filter
from workers.filters.lookup_tables import ChannelTables, tables_by_pillow
from workers.kernels.items import Pass, Shape


class Autocontrast(Filter):
    """Stretch the tones of the image over the whole range."""

    name: Literal["autocontrast"] = "autocontrast"
    cutoff: float = Field(
        0,
        ge=0,
        le=49.9,
        description="share of the darkest and of the lightest samples that may be lost",
        json_schema_extra={"unit": "%"},
    )
    preserve_tone: bool = Field(
        False, description="stretch by the luma, which keeps hues, instead of channel by channel"
    )

    example: ClassVar = {"name": "autocontrast", "cutoff": 1}
    alpha_rule: ClassVar = "point"
    counts_first: ClassVar = True
    cpu_bytes_per_pixel: ClassVar = (14, 17)
    passes: ClassVar = (*COUNTS, Pass("autocontrast_tables"), THROUGH_TABLES)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.autocontrast` of uint8 (H, W, C); alpha is copied."""
        return by_pillow(
            pixels,
            lambda image: ImageOps.autocontrast(
                image, self.cutoff, preserve_tone=self.preserve_tone
            ),
        )

    def counted(self, pixels: Pixels) -> ChannelTables:
        """Return the tables that Pillow makes of the counts of this image."""
        stretch = partial(
            ImageOps.autocontrast, cutoff=self.cutoff, preserve_tone=self.preserve_tone
        )
        return ChannelTables(tables_by_pillow(pixels, stretch))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass that counts levels or lumas, then the passes that make and apply the
        tables.
        """
        return (COUNTS[self.preserve_tone], *self.passes[2:])

    def device_data(self, shape: Shape) -> bytes:
        """Return the samples that may be lost at either end, as Pillow counts them, and
        `preserve_tone`.
        """
        cut = int(shape[0] * shape[1] * self.cutoff // 100)
        return counted(cut, self.preserve_tone)
