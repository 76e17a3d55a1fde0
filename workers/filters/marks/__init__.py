"""Filters that mark an image: the redaction of regions, a picture over it."""

import base64
import functools
import math
import struct
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from models.domain.errors import InvalidParameter, TooManyPixels
from models.domain.image import Pixels
from workers.filters import bands
from workers.filters.arithmetic import sums
from workers.filters.base import Filter, HexColour, PieceFilter, colour, number, rows_of_text
from workers.filters.blur import BoxBlur
from workers.filters.effects import Pixelate
from workers.filters.geometry import level_of
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Pass, Shape

MOST_REGIONS = 32
"""Most regions of a redaction: each has one or two launches on a GPU."""

CELLS = 8
"""Squares along the longer side of a region, if no strength is given."""

Box = tuple[int, int, int, int]
"""Left, top, width and height of a region inside an image, in pixels."""


Start = Annotated[float, Field(ge=-100_000, le=100_000, strict=True)]
Length = Annotated[float, Field(gt=0, le=200_000, strict=True)]
Regions = Annotated[
    tuple[tuple[Start, Start, Length, Length], ...],
    BeforeValidator(rows_of_text),
    Field(min_length=1, max_length=MOST_REGIONS),
]


class Redact(PieceFilter):
    """Make regions unrecognisable, such as faces and plates; only `fill` hides all for certain."""

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
    background: HexColour = colour("000000", "colour of fill, which is opaque")

    example: ClassVar = {"regions": [[0.3, 0.2, 0.4, 0.5]], "unit": "share"}
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
        channels = pixels.shape[2]
        for left, top, width, height in self._boxes(*pixels.shape[:2]):
            stop_if_late()
            region = result[top : top + height, left : left + width]
            if self.method == "fill":
                region[:] = level_of(self.background, channels)[:channels]
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
        fill = level_of(self.background, shape[2]).tobytes().ljust(4, b"\0")
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


MOST_PICTURE = 1 << 18
"""Most pixels of the pictures of a chain's overlays, which travel with every job: 1 MiB in RGBA."""

_SIZE = struct.Struct("<2i")
"""Width and height, which stand before the RGBA pixels of a picture."""


def check_picture(n_pixels: int) -> None:
    """Raise TooManyPixels for an overlay or a template of more than `MOST_PICTURE` pixels."""
    if n_pixels > MOST_PICTURE:
        text = f"the picture has {n_pixels:,} pixels; at most {MOST_PICTURE:,} are allowed; "
        raise TooManyPixels(text + "send it smaller")


def picture_of(pixels: Pixels) -> bytes:
    """Return grey, RGB or RGBA pixels as an overlay or a template; raises TooManyPixels."""
    height, width, channels = pixels.shape
    check_picture(height * width)
    found = np.full((height, width, 4), 255, np.uint8)
    found[..., : max(channels, 3)] = pixels
    return _SIZE.pack(width, height) + found.tobytes()


def pixels_in(picture: bytes) -> Pixels:
    """Return the RGBA pixels of a picture, (h, w, 4)."""
    width, height = _SIZE.unpack_from(picture)
    return np.frombuffer(picture, np.uint8, offset=_SIZE.size).reshape(height, width, 4)


def _picture(given: object) -> object:
    """Return a picture, also one in base64; raise ValueError for anything else."""
    found = base64.urlsafe_b64decode(given) if isinstance(given, str) else given
    if isinstance(found, bytes) and len(found) > _SIZE.size:
        width, height = _SIZE.unpack_from(found)
        fits = 0 < width <= MOST_PICTURE and 0 < height <= MOST_PICTURE // width
        if fits and len(found) == _SIZE.size + 4 * width * height:
            return found
    raise ValueError("no picture")


@functools.lru_cache(8)
def _faded(picture: bytes, opacity: float) -> Pixels:
    """Return the RGBA pixels of a picture (h, w, 4) with less alpha, rounded half up."""
    found = pixels_in(picture).copy()
    found[..., 3] = np.floor(found[..., 3] * opacity + 0.5)
    return found


Position = Literal[
    "north_west", "north", "north_east", "west", "center", "east", "south_west", "south",
    "south_east",
]  # fmt: skip
"""Places of a picture, row by row."""

_RING = np.clip(900 - 150 * np.abs(np.hypot(*(np.mgrid[:40, :40] - 19.5)) - 15), 0, 255)
SAMPLE = picture_of(np.dstack([np.full((40, 40, 3), 255), _RING]).astype(np.uint8))
"""The picture of the catalogue, a white ring."""


class Overlay(Filter):
    """Lay a picture over the image, such as a watermark: the file `overlay` of a form."""

    model_config = ConfigDict(ser_json_bytes="base64")

    position: Position = Field(
        "south_east", description="side of the image; parts of the picture beyond are cut off"
    )
    x: int = number(
        0, -65_500, 65_500, "px", "distance inwards from a side; from the centre to the right"
    )
    y: int = number(0, -65_500, 65_500, "px", "distance inwards from top or bottom; else down")
    opacity: float = number(1, 0, 1, "ratio", "factor of the opacity that the picture has")
    tile: bool = Field(False, description="repeat the picture in all directions")
    picture: SkipJsonSchema[Annotated[bytes, BeforeValidator(_picture)]] = Field(SAMPLE, repr=False)

    example: ClassVar = {"position": "south_east", "x": 4, "y": 4}
    alpha_rule: ClassVar = "over"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    result_shape: ClassVar = "colour"
    passes: ClassVar = (Pass("overlay"),)

    @property
    def n_pixels(self) -> int:
        """Return the number of pixels of the picture."""
        return len(self.picture) // 4 - 2

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `alpha_composite` of image and picture, uint8 (H, W, 3 or 4)."""
        result = np.empty(self.shape_after(pixels.shape), np.uint8)
        result[:] = pixels
        picture, sides = _faded(self.picture, self.opacity), pixels.shape[:2]
        at = [  # of every row and column, in the picture; -1: beside it
            self._within(np.arange(side), axis) for axis, side in enumerate(sides)
        ]
        rows, columns = (np.flatnonzero(each >= 0) for each in at)
        for part in sums.bands(len(rows), max(1, 4 * len(columns))):
            stop_if_late()
            seen = np.ix_(rows[part], columns)
            over = picture[np.ix_(at[0][rows[part]], at[1][columns])]
            under = np.full(over.shape, 255, np.uint8)
            under[..., : result.shape[2]] = result[seen]
            if over.size:
                made = Image.alpha_composite(Image.fromarray(under), Image.fromarray(over))
                result[seen] = np.asarray(made)[..., : result.shape[2]]
        return result

    def _within(self, at: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Return the place in the picture of each place along an axis of the image (0: rows)."""
        own, offset = _faded(self.picture, self.opacity).shape[axis], (self.y, self.x)[axis]
        free = len(at) - own
        at = at - (offset, free // 2 + offset, free - offset)[self._place[axis]]
        return at % own if self.tile else np.where((at >= 0) & (at < own), at, -1)

    @property
    def _place(self) -> tuple[int, int]:
        """Return row and column of the position: 0 at the start, 1 in the middle, 2 at the end."""
        return divmod(get_args(Position).index(self.position), 3)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Overlay` and the pixels of the picture."""
        faded, (row, column) = _faded(self.picture, self.opacity), self._place
        place = faded.shape[1], faded.shape[0], column, row, self.x, self.y, self.tile, 0
        return struct.pack("<8i", *place) + faded.tobytes()
