"""The base class of all filters: a frozen pydantic model that holds the parameters of a filter and
its CPU specification.

All filters follow these rules. Input and output are uint8 arrays of shape (H, W, C), where C is 1
for grey, 3 for RGB and 4 for RGB with straight alpha. The result has the shape of the input unless
the filter declares otherwise. No filter changes its input in place.
"""

import math
import re
import struct
from abc import abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from models.api.numbers import plain_float
from models.domain.image import Pixels
from workers.filters.arithmetic.colour import TABLE_PASSES, join_alpha, split_alpha, through_table
from workers.kernels.items import Pass, Shape

HexColour = Annotated[str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
"""An opaque colour: `#ff8800`, `ff8800` or `f80`."""

HexColourAlpha = Annotated[
    str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$")
]
"""A colour that may have an opacity: eight digits end with it; fewer digits mean opaque."""

OPAQUE = "a colour such as ff8800 or f80"
WITH_ALPHA = "a colour such as ff8800, f80 or, half transparent, ff880080"
"""The words in which error messages and the catalogue describe the values of both types."""


# The declaration of a parameter. Validation, error messages, the catalogue, the pages and the
# OpenAPI document derive from it.


def number(
    default: float | None, low: float, high: float, unit: str, description: str, **more: Any
) -> Any:
    """Return the field of a number from `low` to `high`, both allowed; `more` joins its schema."""
    extra = {"unit": unit, **more}
    return Field(default, ge=low, le=high, description=description, json_schema_extra=extra)


def odd(default: int, low: int, high: int, description: str) -> Any:
    """Return the field of an `Odd` number of pixels."""
    return number(default, low, high, "px", description, **{"not": {"multipleOf": 2}})


def colour(default: str | None, description: str, takes: str = OPAQUE) -> Any:
    """Return the field of a HexColour, or of a HexColourAlpha that `takes` WITH_ALPHA."""
    return Field(default, description=description, json_schema_extra={"takes": takes})


def rgba(colour: str) -> tuple[int, int, int, int]:
    """Return red, green, blue and opacity of a valid colour, each from 0 to 255."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    red, green, blue, alpha = bytes.fromhex(digits.ljust(8, "f"))
    return red, green, blue, alpha


_MOST_PARTS = 32
"""The longest list of numbers, and of lists, that any filter takes."""


def rows_of_text(given: object) -> object:
    """Return lists of numbers from text; return anything else unchanged.

    Semicolons separate lists and commas separate numbers.
    """
    if not isinstance(given, str):
        return given
    rows = given.split(";", _MOST_PARTS)
    return [[plain_float(each) for each in row.split(",", _MOST_PARTS)] for row in rows]


SPEC_VERSION = 1
"""The version of all specifications. Raise it whenever any filter returns other bytes for the same
request.
"""


def _odd(value: int) -> int:
    """Return the value unchanged; raise ValueError if it is even."""
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


Odd = Annotated[int, AfterValidator(_odd)]
"""A type for odd integers: the side of a square that has a middle pixel, in pixels."""


class Filter(BaseModel):
    """Base class of every filter: the class is the declaration, and its fields are the parameters.

    Class variables:

    - `name`: the name of the filter, which is that of the class: `box_blur` of `BoxBlur`.
    - `example`: parameters that document the filter and draw its thumbnail. The name is added.
    - `alpha_rule`: "point" filters colours without regard to alpha, "premul" filters colour times
      alpha, "plane" filters alpha as a further plane, "keep" copies alpha, "drop" removes it,
      "over" unites it with the alpha of a picture, "shape" changes alpha and copies colours.
    - `border`: how the pixels outside the image are defined; None if no result depends on them.
    - `result_shape`: "same", "colour" (grey becomes RGB), "alpha" (RGBA), "no alpha", "turned",
      or "resized".
    - `tolerance`: the distance to the reference implementation that the tests enforce, in words.
    - `device_tolerance`: the share of samples that a GPU may return a level off the CPU result.
    - `cpu_bytes_per_pixel`: the bytes of memory that the result and temporary arrays take at a time
      on a CPU, for grey or RGB and for RGBA, measured (`tests/bench/results/memory.md`). A filter
      that is a table takes its result only.
    - `row_reach`: how many rows above and below its own, and columns beside it, a pixel of the
      result depends on: a number, two numbers for rows and columns, or a function of the filter
      that returns them. None: it depends on the whole image, or on its place.
    - `passes`: all launches on a GPU, in order; an `ArrayFilter` has none.
    - `packed`: the format of `struct` in which kernels read parameters, and the parameters' names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str]
    example: ClassVar[dict[str, Any]]
    alpha_rule: ClassVar[str]
    border: ClassVar[str | None] = None
    result_shape: ClassVar[Literal["same", "colour", "alpha", "no alpha", "turned", "resized"]] = (
        "same"
    )
    tolerance: ClassVar[str] = "exact"
    device_tolerance: ClassVar[float] = 0
    cpu_bytes_per_pixel: ClassVar[tuple[int, int]] = (7, 15)
    row_reach: ClassVar[Any] = None
    passes: ClassVar[tuple[Pass, ...]] = ()
    packed: ClassVar[tuple[str, ...]] = ("",)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.name = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        cls.example = {"name": cls.name, **vars(cls).get("example", {})}

    @model_serializer(mode="wrap")
    def _request(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the object by which a request asks for this filter."""
        return {"name": self.name, **fields(self)}

    @abstractmethod
    def apply(self, pixels: Pixels) -> Pixels:
        """Return the filtered image, uint8 (H, W, C) both ways. This is the specification."""

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the launches that these parameters need; equal launches share a batch."""
        return self.passes

    @property
    def measures(self) -> bool:
        """Return whether a number of these parameters follows from pixels; see `measured`."""
        return False

    def measured(self, pixels: Pixels) -> "Filter":
        """Return a filter that does not measure, with the same result for these pixels.

        The pipeline calls this on a CPU in place of a filter that `measures`. Engines therefore
        never receive such a filter, and all devices use the same numbers.
        """
        return self

    def device_data(self, shape: Shape, /) -> bytes:
        """Return the bytes that the kernels of `passes` read as an item's `data`.

        `shape` is (height, width, channels) of the source. Numbers are little-endian. If a filter
        defines nothing else, these are the 256 bytes of its table, or the parameters of `packed`.
        """
        if (table := self.table()) is not None:
            return table.tobytes()
        layout, *names = self.packed
        return struct.pack(layout, *(getattr(self, name) for name in names))

    def memory(self, shape: Shape) -> int:
        """Return the bytes that `apply` takes at a time for an image of this shape, by estimate.

        The input is not included. Raises InvalidParameter where `size_after` raises it.
        """
        after = self.shape_after(shape)
        if self.table() is not None:
            return math.prod(after)
        opaque, with_alpha = self.cpu_bytes_per_pixel
        pixels = max(shape[0] * shape[1], after[0] * after[1])
        return pixels * (with_alpha if shape[2] == 4 else opaque)

    @property
    def around(self) -> tuple[int, int] | None:
        """Return `row_reach` as rows and columns; a table depends on no neighbours.

        Large images are filtered in bands with these rows or columns around them (see `bands.py`).
        """
        reach = self.row_reach if self.table() is None else 0
        found: int | tuple[int, int] | None = reach() if callable(reach) else reach
        return (found, found) if isinstance(found, int) else found

    def table(self) -> NDArray[np.uint8] | None:
        """Return the new value of each level of a colour sample: 256 × uint8, or None.

        None means that the result depends on more than the level. Neighbours in a chain that have
        tables run as a single table (see `steps`).
        """
        return None

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of device memory that the passes may use beside image and result."""
        return 4 * math.prod(shape)

    def shape_after(self, shape: Shape) -> Shape:
        """Return (height, width, channels) of the result for an image of this shape.

        Raises InvalidParameter where `size_after` raises it.
        """
        height, width, channels = shape
        if self.result_shape == "colour":
            channels = max(channels, 3)
        elif self.result_shape == "alpha":
            channels = 4
        elif self.result_shape == "no alpha":
            channels = min(channels, 3)
        return (*self.size_after(height, width), channels)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the result, in pixels.

        Raises InvalidParameter for an image that these parameters cannot be applied to.
        """
        return height, width


class TableFilter(Filter):
    """Base class of filters that map each level of a colour by a table; alpha is copied."""

    alpha_rule: ClassVar[str] = "point"
    passes: ClassVar[tuple[Pass, ...]] = TABLE_PASSES

    @abstractmethod
    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, 256 × uint8. This is the specification."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, C) after a look-up for each colour sample."""
        return through_table(pixels, self.table())


class ColourFilter(Filter):
    """Base class of filters that compute the colours without regard to alpha, which is copied."""

    alpha_rule: ClassVar[str] = "keep"

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the result of `recoloured` with the alpha of the image, uint8 (H, W, C)."""
        colour, alpha = split_alpha(pixels)
        return join_alpha(self.recoloured(colour), alpha)

    @abstractmethod
    def recoloured(self, colour: Pixels) -> Pixels:
        """Return new colours, uint8 (H, W, 1 or 3) both ways. This is the specification."""


class CountingFilter(Filter):
    """Base class of filters that count the image first, and then compute each pixel by itself."""

    alpha_rule: ClassVar[str] = "point"

    @abstractmethod
    def counted(self, pixels: Pixels) -> Filter:
        """Return a filter of single pixels with the same result for this image, read in pieces."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the result of the filter that `counted` returns."""
        return self.counted(pixels).apply(pixels)


class PieceFilter(Filter):
    """Base class of filters that write a result of the shape of the input piece by piece."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the result of `write` in a new array."""
        result = np.empty(pixels.shape, np.uint8)
        self.write(np.ascontiguousarray(pixels), result)
        return result

    @abstractmethod
    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result into an array of the same shape, which may be `pixels` itself.

        Both arrays are uint8 (H, W, C), C-contiguous. This is the specification.
        """


class ArrayFilter(PieceFilter):
    """Base class of filters without kernels: an array library computes them, NumPy on a CPU and
    torch on a GPU, by the same calls.
    """

    alpha_rule: ClassVar[str] = "keep"

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `compute` by NumPy. This is the specification."""
        scratch = np.empty(self.device_scratch(pixels.shape), np.uint8)
        self.compute(np, pixels, result, scratch)

    @abstractmethod
    def compute(self, xp: Any, pixels: Any, result: Any, scratch: Any) -> None:
        """Write the result by `xp`, which is `numpy` or `torch`, on the device of the arguments.

        These are arrays or tensors: the image and the result, uint8 (H, W, C), which may be one,
        and `device_scratch` bytes, uint8. On a GPU, further memory should not grow with the image.
        """


# Compose neighbouring table filters of a chain into a single table, which gives the same bytes.
# Matrices and blends of several channels cannot be composed: levels are rounded and clamped between
# two of them, which no single matrix repeats. They run singly.


class ComposedTables(TableFilter):
    """The table that stands for several filters; all have one name, so they share batches."""

    levels: bytes

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256,)."""
        return np.frombuffer(self.levels, np.uint8)


def steps(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters in order, each run of neighbours that have tables as a single filter."""
    made: list[Filter] = []
    tables = [(each, each.table()) for each in filters]
    for collapses, run in groupby(tables, lambda pair: pair[1] is not None):
        if not collapses:
            made += [each for each, _ in run]
            continue
        whole = np.arange(256, dtype=np.uint8)
        for _, table in run:
            assert table is not None
            whole = table.ravel()[whole]
        made.append(ComposedTables(levels=whole.tobytes()))
    return tuple(made)
