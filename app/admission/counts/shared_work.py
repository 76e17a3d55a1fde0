"""Work that front ends have given to workers, in the memory of the counters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_WORKERS = 128
"""Workers whose work is counted."""


def checked(workers: int) -> int:
    """Return a number of workers; ValueError if there are too many."""
    if workers > MOST_WORKERS:
        most = f"at most {MOST_WORKERS} are allowed; set fewer workers for each GPU"
        raise ValueError(f"there are {workers} workers, and {most}")
    return workers


class SharedWork:
    """Nanoseconds of unanswered work of each worker: `cells` int64 (workers, columns).

    A front end writes its own column; what it reads of others may be some microseconds old.
    """

    def __init__(self, cells: NDArray[np.int64], column: int) -> None:
        self._cells = cells
        own: Any = cells[:, column]
        self._own = memoryview(own)  # to add to an element of an array takes three times as long

    def add(self, worker: int, nanoseconds: int) -> None:
        """Add to the work that this front end has given to a worker."""
        self._own[worker] += nanoseconds

    def totals(self) -> Sequence[int]:
        """Return the work of each worker, given by all front ends."""
        found: list[int] = np.add.reduce(self._cells, axis=1).tolist()
        return found
