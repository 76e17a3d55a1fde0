"""Filters that mark a picture: the redaction of regions."""

import math
import struct
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from models.api.numbers import plain_float
from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from workers.filters import bands
from workers.filters.arithmetic.colour import luma
from workers.filters.base import HexColour, PieceFilter, colour, number, rgba
from workers.filters.blur import BoxBlur
from workers.filters.effects import Pixelate
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Pass, Shape

MOST_REGIONS = 32
"""Most regions of a redaction: each has one or two launches on a GPU."""

CELLS = 8
"""Squares along the longer side of a region, if no strength is given."""

Box = tuple[int, int, int, int]
"""Left, top, width and height of a region inside an image, in pixels."""


def _regions(given: object) -> object:
    """Return regions from text, where semicolons separate regions and commas numbers."""
    if not isinstance(given, str):
        return given
    regions = given.split(";", MOST_REGIONS)
    return [[plain_float(each) for each in region.split(",", 4)] for region in regions]


Start = Annotated[float, Field(ge=-100_000, le=100_000, strict=True)]
Length = Annotated[float, Field(gt=0, le=200_000, strict=True)]
Regions = Annotated[
    tuple[tuple[Start, Start, Length, Length], ...],
    BeforeValidator(_regions),
    Field(min_length=1, max_length=MOST_REGIONS),
]


class Redact(PieceFilter):
    """Make regions unrecognisable, such as faces and plates; only `fill` hides all for certain."""

    name: Literal["redact"] = "redact"
    regions: Regions = Field(
        ((-100_000, -100_000, 200_000, 200_000),),
        description="left, top, width and height of each region; edges move outwards to whole "
        "pixels, and parts outside the image are left out; if not given, the whole image",
        json_schema_extra={
            "takes": f"a list of 1 to {MOST_REGIONS} regions [left, top, width, height], with "
            "width and height above 0"
        },
    )
    unit: Literal["px", "share"] = Field(
        "px", description="unit of regions: pixels, or shares of the image's width and height"
    )
    method: Literal["pixelate", "blur", "fill"] = Field(
        "pixelate", description="the filter of the region alone: pixelate, box_blur, or a colour"
    )
    strength: int | None = number(
        None,
        2,
        500,
        "px",
        "side of the squares of pixelate, or radius of blur; if not given, an eighth of the "
        "region's longer side",
    )
    background: HexColour = colour("000000", "colour of fill")

    example: ClassVar = {"name": "redact", "regions": [[0.3, 0.2, 0.4, 0.5]], "unit": "share"}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "replicate, at the edges of each region"
    passes: ClassVar = tuple(
        Pass(f"redact_{each}") for each in ("copy", "fill", "pixelate", "rows", "columns")
    )

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the image, and over it each region in order: the crop, filtered by itself.

        Raises DeadlineExceeded between regions.
        """
        if result is not pixels:
            result[:] = pixels
        for left, top, width, height in self._boxes(*pixels.shape[:2]):
            stop_if_late()
            region = result[top : top + height, left : left + width]
            if self.method == "fill":
                region[:] = self._colour(pixels.shape[2])
                continue
            crop = np.ascontiguousarray(region)
            region[:] = bands.apply(self._filter(width, height), crop, overwrite=True)

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the result, of the largest crop, and of its filter, by estimate."""
        boxes, channels = self._boxes(*shape[:2]), shape[2]
        crops = [(self._filter(w, h), (h, w, channels)) for _, _, w, h in boxes]
        return math.prod(shape) + max(
            math.prod(crop) + bands.memory(each, crop, overwrite=True) for each, crop in crops
        )

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the copy, and the passes of the method for each region."""
        copy, fill, pixelate, *blur = self.passes
        each = {"fill": (fill,), "pixelate": (pixelate,), "blur": (*blur,)}[self.method]
        return (copy, *(each * len(self.regions)))

    def device_data(self, shape: Shape) -> bytes:
        """Return a `struct Region` of 32 bytes for each region."""
        fill = self._colour(shape[2]).tobytes().ljust(4, b"\0")
        return b"".join(
            struct.pack("<5i4s8x", *box, self._size(*box[2:]), fill)
            for box in self._boxes(*shape[:2])
        )

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of the image; raises InvalidParameter for a region outside of it."""
        self._boxes(height, width)
        return height, width

    def _boxes(self, height: int, width: int) -> list[Box]:
        """Return the part of each region inside an image of this size."""
        across, down = (width, height) if self.unit == "share" else (1, 1)
        found = []
        for number_, (x, y, w, h) in enumerate(self.regions):
            left, top = max(0, math.floor(x * across)), max(0, math.floor(y * down))
            right = min(width, math.ceil((x + w) * across))
            bottom = min(height, math.ceil((y + h) * down))
            if left >= right or top >= bottom:
                raise InvalidParameter(
                    f"redact: regions[{number_}] lies outside of an image of {width} × {height} "
                    "pixels; check its numbers and its unit, because nothing of it is hidden"
                )
            found.append((left, top, right - left, bottom - top))
        return found

    def _size(self, width: int, height: int) -> int:
        """Return the strength for a region, in pixels."""
        return self.strength or min(500, max(2, math.ceil(max(width, height) / CELLS)))

    def _filter(self, width: int, height: int) -> Any:
        size = self._size(width, height)
        return BoxBlur(radius=size) if self.method == "blur" else Pixelate(size=size)

    def _colour(self, channels: int) -> Pixels:
        """Return the colour as uint8: a sample for a grey image, else one for each channel."""
        found = np.array(rgba(self.background), np.uint8)
        return found[:channels] if channels > 1 else luma(found.reshape(1, 1, 4)).ravel()
