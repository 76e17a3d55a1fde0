"""States of nvJPEG's decoder that batches hold in turn while they are decoded.

A batch of each slot may be in work at the same time, but seldom are several decoded at once. So
there is one state for each size below the largest one, and a batch that finds it held takes
the next larger one that is free. When each slot had a state for each size, a worker had 33 in place
of 13: they took 3.3 s of the driver's lock to make and 12 MB each, and the driver needed 47 ms for
each to release a killed worker (H100), while no other could start.
"""

import ctypes
import threading
from typing import Protocol

State = ctypes.c_void_p

STEP = 8


class Event(Protocol):
    """What marks the end of work on a device, as `torch.cuda.Event` does."""

    def query(self) -> bool:
        """Return whether the work has ended."""


class SharedStates:
    """The states by the number of files that each was made for; any thread may call the methods."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._free: dict[int, Event | None] = {}
        self._lock = threading.Lock()

    def add(self, n: int, state: State) -> None:
        """Let batches of up to `n` files take a state from now on."""
        with self._lock:
            self._states[n] = state
            self._free[n] = None

    def take(self, n: int) -> tuple[int, State] | None:
        """Return the smallest free state that `n` files fit into, with its size, or None.

        It belongs to the caller until `give_back`.
        """
        with self._lock:
            for size in sorted(self._free):
                if size >= n and ((after := self._free[size]) is None or after.query()):
                    del self._free[size]
                    return size, self._states[size]
            return None

    def give_back(self, size: int, after: Event | None) -> None:
        """Let others take the state of this size once `after` marks the end of decoding."""
        with self._lock:
            self._free[size] = after


def shared_sizes(max_batch_size: int) -> list[int]:
    """Return the numbers of files below the most that share a state: 1, 2, 4, multiples of 8."""
    multiples = range(STEP, max_batch_size, STEP)
    return [*(few for few in (1, 2, 4) if few < max_batch_size), *multiples]
