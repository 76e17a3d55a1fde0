"""Compose neighbouring table filters of a chain into a single table, which gives the same bytes.

Matrices and blends of several channels cannot be composed: levels are rounded and clamped between
two of them, which no single matrix repeats. They run singly.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workers.filters.base import Filter, TableFilter


class ComposedTables(TableFilter):
    """The table that stands for several filters; all have one name, so they share batches."""

    name: Literal["tables"] = "tables"
    levels: bytes

    def table(self) -> NDArray[np.uint8]:
        """Return the new value of each level, uint8 (256,)."""
        return np.frombuffer(self.levels, np.uint8)


def steps(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters in order, each run of neighbours that have tables as a single filter."""
    return tuple(_steps(filters))


def _steps(filters: Sequence[Filter]) -> Iterator[Filter]:
    tables = [(each, each.table()) for each in filters]
    for collapses, run in groupby(tables, lambda pair: pair[1] is not None):
        if not collapses:
            yield from (each for each, _ in run)
            continue
        whole = np.arange(256, dtype=np.uint8)
        for _, table in run:
            assert table is not None
            whole = table.ravel()[whole]
        yield ComposedTables(levels=whole.tobytes())
