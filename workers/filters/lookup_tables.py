"""Compose neighbouring table filters of a chain into a single table, which gives the same bytes.

Matrices and blends of several channels cannot be composed: levels are rounded and clamped between
two of them, which no single matrix repeats. They run singly.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import TABLE_PASSES, through_table
from workers.filters.arithmetic.tiling import pieces
from workers.filters.base import Filter, RowStep
from workers.kernels.items import Pass, Shape


class ChainStep(Protocol):
    """A step of a chain as an engine runs it: a filter, or a table that stands for several."""

    @property
    def name(self) -> str:
        """Return the name of the filter, or "tables"."""

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the launches on a GPU; none if there are no kernels."""

    @property
    def rows_around(self) -> int | None:
        """Return how many rows above and below its own a row of the result depends on."""

    @property
    def columns_around(self) -> int | None:
        """Return how many columns on each side of its own a column depends on."""

    @property
    def counts_first(self) -> bool:
        """Return whether `counted` is to be called for a large image."""

    @property
    def in_pieces(self) -> bool:
        """Return whether `write` may overwrite the input of a large image."""

    def counted(self, pixels: Pixels) -> RowStep:
        """Return a step that computes each pixel by itself, after the image has been counted."""

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result into an array of the same shape, which may be `pixels` itself."""

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the result, uint8 (H, W, C)."""

    def memory(self, shape: Shape) -> int:
        """Return the bytes that `apply` takes at a time beside its input, by estimate."""

    def device_data(self, shape: Shape) -> bytes:
        """Return the bytes that the kernels read."""

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of device memory that the passes need besides image and result."""

    def shape_after(self, shape: Shape) -> Shape:
        """Return (height, width, channels) of the result."""


@dataclass(frozen=True, slots=True, eq=False)
class ComposedTables:
    """A step that maps every colour sample by a table, uint8 (256,); alpha is copied."""

    table: NDArray[np.uint8]

    @property
    def name(self) -> str:
        """Return the same name for all tables, so that images with different tables share a
        batch.
        """
        return "tables"

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass, however many filters the table stands for."""
        return TABLE_PASSES

    @property
    def rows_around(self) -> int:
        """Return 0 rows: each sample is looked up by itself."""
        return 0

    @property
    def columns_around(self) -> int:
        """Return 0 columns, in the same way."""
        return 0

    @property
    def counts_first(self) -> bool:
        """Return False: the table is known."""
        return False

    @property
    def in_pieces(self) -> bool:
        """Return False: the image is divided into bands."""
        return False

    def counted(self, _pixels: Pixels) -> "ComposedTables":
        """Return the step itself."""
        return self

    def write(self, pixels: Pixels, result: Pixels) -> None:
        """Write the result of `apply`."""
        result[:] = self.apply(pixels)

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the result."""
        return math.prod(shape)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, C) after a look-up for each colour sample."""
        return through_table(pixels, self.table)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the 256 bytes of the table."""
        return self.table.tobytes()

    def device_scratch(self, _shape: Shape) -> int:
        """Return 0 bytes: a look-up needs no scratch memory."""
        return 0

    def shape_after(self, shape: Shape) -> Shape:
        """Return the shape unchanged."""
        return shape


@dataclass(frozen=True, slots=True, eq=False)
class ChannelTables:
    """A step that maps the samples of each channel by a table of its own, uint8 (channels, 256)."""

    tables: NDArray[np.uint8]

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the result."""
        return math.prod(shape)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, C) after a look-up for each sample."""
        tables = cv2.merge([np.ascontiguousarray(each[None]) for each in self.tables])
        mapped = cv2.LUT(np.ascontiguousarray(pixels), tables)
        return np.asarray(mapped, np.uint8).reshape(pixels.shape)

    def shape_after(self, shape: Shape) -> Shape:
        """Return the shape unchanged."""
        return shape


def steps(filters: Sequence[Filter]) -> tuple[ChainStep, ...]:
    """Return the filters in order, each run of neighbours that have tables as a single step."""
    return tuple(_steps(filters))


def _steps(filters: Sequence[Filter]) -> Iterator[ChainStep]:
    tables = [(each, each.table()) for each in filters]
    for collapses, run in groupby(tables, lambda pair: pair[1] is not None):
        if not collapses:
            yield from (each for each, _ in run)
            continue
        whole = np.arange(256, dtype=np.uint8)
        for _, table in run:
            assert table is not None
            whole = table.ravel()[whole]
        yield ComposedTables(whole)


# Counts of levels piece by piece, of which Pillow makes tables.

COUNTED = 1 << 20
"""Samples that are counted at a time."""


def tables_by_pillow(
    pixels: Pixels, function: Callable[[Image.Image], object]
) -> NDArray[np.uint8]:
    """Return the tables, uint8 (channels, 256), that a function of `PIL.ImageOps` applies.

    The function counts levels and ends with `image.point(tables)`. It is given an image that has
    the counts alone, so that no copy of the pixels is made. Alpha keeps its levels.
    """
    n = min(pixels.shape[2], 3)
    levels = np.asarray(function(cast(Image.Image, _Counted(pixels)))).reshape(n, 256)
    tables = np.clip(levels, 0, 255).astype(np.uint8)  # as Pillow's own `point` does
    alpha = [np.arange(256, dtype=np.uint8)[None]] if pixels.shape[2] == 4 else []
    return np.concatenate([tables, *alpha])


class _Counted:
    """The part of an image that `PIL.ImageOps` uses: its mode, its histogram, and to apply
    tables.
    """

    def __init__(self, pixels: Pixels, *, as_luma: bool = False) -> None:
        self._pixels = pixels
        self._as_luma = as_luma
        self.mode = "L" if pixels.shape[2] == 1 or as_luma else "RGB"

    def convert(self, mode: str) -> "_Counted":
        """Return the same image, of which lumas are counted."""
        assert mode == "L"
        return _Counted(self._pixels, as_luma=True)

    def histogram(self, mask: None = None) -> list[int]:
        """Return the counts of 256 levels for each colour, or of lumas."""
        assert mask is None
        counts = sum(
            np.array(self._picture(piece).histogram(), np.int64)
            for piece in pieces(self._pixels, COUNTED)
        )
        return [int(count) for count in cast(Any, counts)]

    def point(self, tables: list[int]) -> list[int]:
        """Return the tables in place of an image that they were applied to."""
        return tables

    def _picture(self, pixels: Pixels) -> Image.Image:
        colour = np.ascontiguousarray(pixels[:, :, :3])
        picture = Image.fromarray(colour[:, :, 0] if colour.shape[2] == 1 else colour)
        return picture.convert("L") if self._as_luma else picture
