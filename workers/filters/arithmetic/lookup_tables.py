"""Runs of filters that are a table each, as one table: the bytes are those of one after the other.

Matrices and blends of several channels do not collapse so: between two of them levels are rounded
and clamped, which no single matrix repeats. They run one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import TABLE_PASSES, through_table
from workers.filters.base import Filter
from workers.kernels.items import Pass, Shape


class ChainStep(Protocol):
    """What an engine runs of a chain: a filter, or the table of several; as `Filter` says."""

    @property
    def name(self) -> str:
        """A filter's name, or "tables"."""

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """The launches on a GPU, none if there are no kernels."""

    def apply(self, pixels: Pixels) -> Pixels:
        """The result, uint8 (H, W, C)."""

    def device_data(self, shape: Shape) -> bytes:
        """What the kernels read."""

    def device_scratch(self, shape: Shape) -> int:
        """Bytes that the passes need beside."""

    def shape_after(self, shape: Shape) -> Shape:
        """The result's shape."""


@dataclass(frozen=True, slots=True, eq=False)
class ComposedTables:
    """Every colour sample through one table, uint8 (256,); alpha as it is."""

    table: NDArray[np.uint8]

    @property
    def name(self) -> str:
        """The same for all, so that images with different tables share a batch."""
        return "tables"

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """One, however many filters the table stands for, and if they have no kernels as well."""
        return TABLE_PASSES

    def apply(self, pixels: Pixels) -> Pixels:
        """A look-up for each sample."""
        return through_table(pixels, self.table)

    def device_data(self, shape: Shape) -> bytes:
        """The table."""
        return self.table.tobytes()

    def device_scratch(self, shape: Shape) -> int:
        """None."""
        return 0

    def shape_after(self, shape: Shape) -> Shape:
        """The same."""
        return shape


def steps(filters: Sequence[Filter]) -> tuple[ChainStep, ...]:
    """The filters in order, neighbours that are tables as one."""
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
