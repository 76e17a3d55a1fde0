"""Share counts among all front ends of a server, so that each limit holds for the whole server.

The memory is a table of 64-bit integers. Each front end writes a column of its own and no other
one; a count is the sum of its row. No lock is needed: to take something, a front end adds it to
its column, reads the sum, and subtracts it again if the sum exceeds the limit. So the amount taken
never exceeds a limit, whatever the timing. The price is that two front ends which ask for the last
place in the same microsecond may both be refused. A lock (`fcntl.lockf`) would be exact in that
case too, but a front end that is descheduled while it holds the lock would stop all others.

Counts by key (a client, a host) are kept in a count-min sketch of `ROWS` rows: a key has one cell
in each row, and its count is the smallest of them (Cormode and Muthukrishnan, 2005,
https://doi.org/10.1016/j.jalgor.2003.12.001). The memory is fixed; a count is too high if other
keys share all cells of a key, and is never too low. The hash has a random seed for each server, so
that clients cannot choose keys that collide.

A front end that was killed leaves its column behind. The supervisor calls `forget` with the process
id, and a process that claims a column first clears those of processes that no longer exist. With 34
columns, `take` takes 1.5 µs and `take_for` 3 µs.
"""

import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from app.admission.counts.fields import ByKey, Mark, Total
from app.admission.counts.rates import SIZE, RateTable
from app.admission.counts.shared_work import MOST_WORKERS, SharedWork, checked
from app.system.processes import is_alive

SLOTS = 1024
"""Cells in one row of the sketch."""

ROWS = 2

COLUMNS_PER_FRONT_END = 2
"""Columns of a front end: its old and its new process both count during a rolling restart."""

SPARE_COLUMNS = 2

SEED_BYTES = 16


Key = tuple[int, int]
"""The index at which a key's cell starts in each of the `ROWS` rows of the sketch."""

_FIRST_MARK = len(Total)
_FIRST_BY_KEY = len(Total) + len(Mark)
_FIRST_WORKER = _FIRST_BY_KEY + len(ByKey) * ROWS * SLOTS
_N_CELLS = _FIRST_WORKER + MOST_WORKERS


class Counters:
    """The shared counts, as one front end reads and writes them.

    `Counters()` is for a server of one process: anonymous memory with one column. For several
    processes the parent calls `create` and passes `fd` on, and each front end calls `attach`.
    """

    def __init__(self, fd: int | None = None, columns: int = 1, column: int | None = 0) -> None:
        self.fd = fd
        self.columns = columns
        end = _N_CELLS * columns * 8
        memory = mmap.mmap(-1 if fd is None else fd, end + SIZE + SEED_BYTES)
        if fd is None:
            memory[-SEED_BYTES:] = secrets.token_bytes(SEED_BYTES)
        self._seed = memory[-SEED_BYTES:]
        self._cells = memoryview(memory)[:end].cast("q")
        self._memory = memory
        # Half the time of a slice; native integers are read in one piece each.
        self._row: Callable[..., tuple[int, ...]] = struct.Struct(f"@{columns}q").unpack_from
        self.rates = RateTable(memory, self._seed, end, fd)
        self._step = ROWS * SLOTS * columns
        self._column = 0 if column is None else column
        self.shared = columns > 1
        self.front_ends = max(1, (columns - SPARE_COLUMNS) // COLUMNS_PER_FRONT_END)

    @classmethod
    def create(cls, front_ends: int) -> "Counters":
        """Create the memory for `front_ends` processes; the caller gets no column. Linux only."""
        columns = COLUMNS_PER_FRONT_END * front_ends + SPARE_COLUMNS
        fd = os.memfd_create("darkroom-counters", os.MFD_CLOEXEC)
        size = _N_CELLS * columns * 8 + SIZE + SEED_BYTES
        os.ftruncate(fd, size)
        os.pwrite(fd, secrets.token_bytes(SEED_BYTES), size - SEED_BYTES)
        return cls(fd, columns, column=None)

    @classmethod
    def attach(cls, fd: int, front_ends: int) -> "Counters":
        """Map the memory of an inherited descriptor, and claim a column for this process."""
        counters = cls(fd, COLUMNS_PER_FRONT_END * front_ends + SPARE_COLUMNS, column=None)
        counters._claim()
        return counters

    def close(self) -> None:
        """Close the descriptor; the mapped memory stays until the process ends."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def forget(self, pid: int) -> None:
        """Clear the column of a process that has ended, because nothing of it is in flight."""
        with self._locked():
            for column in range(self.columns):
                if self._mark(Mark.OWNER, column) == pid:
                    self._clear(column)

    # Totals

    def add(self, field: Total, amount: int) -> None:
        """Add `amount`, which may be negative, without regard to a limit."""
        # A read and a write, not one atomic step. That suffices, because no other process writes to
        # this column, and a reader sees the value before or after the change.
        self._cells[field * self.columns + self._column] += amount

    def total(self, field: Total) -> int:
        """Return the sum over all front ends."""
        if self.columns == 1:
            return self._cells[field]
        return sum(self._row(self._memory, 8 * field * self.columns))

    def take(self, field: Total, amount: int, limit: int) -> bool:
        """Add `amount` if the sum stays within `limit`; return whether it was added."""
        self.add(field, amount)
        if self.total(field) <= limit:
            return True
        self.add(field, -amount)
        return False

    # Counts by key

    def key(self, text: str) -> Key:
        """Return the cells of a key, whose kind comes first: `client 10.0.0.1`, `host a.org`."""
        digest = hashlib.blake2b(text.encode(), digest_size=4 * ROWS, key=self._seed).digest()
        one, other = (
            self._start(
                row * SLOTS + int.from_bytes(digest[4 * row : 4 * row + 4], "little") % SLOTS
            )
            for row in range(ROWS)
        )
        return one, other

    def add_for(self, key: Key, field: ByKey, amount: int) -> None:
        """Add `amount`, which may be negative, to the count of `key`."""
        here = field * self._step + self._column
        one, other = key
        self._cells[one + here] += amount
        self._cells[other + here] += amount

    def of(self, key: Key, field: ByKey) -> int:
        """Return the count of `key` over all front ends; it may be too high, never too low."""
        first = field * self._step
        one, other = key
        if self.columns == 1:
            return min(self._cells[one + first], self._cells[other + first])
        here, there = 8 * (one + first), 8 * (other + first)
        return min(sum(self._row(self._memory, here)), sum(self._row(self._memory, there)))

    def take_for(self, key: Key, field: ByKey, amount: int, limit: int) -> bool:
        """Add `amount` to the count of `key` if it fits into `limit`; return whether it does."""
        self.add_for(key, field, amount)
        if self.of(key, field) <= limit:
            return True
        self.add_for(key, field, -amount)
        return False

    def all_of(self, field: ByKey) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Return the counts of all cells of the first row, shape (SLOTS,): one for each key, unless
        some collide.
        """
        start = self._start(0) + field * self._step
        row = np.frombuffer(self._cells[start : start + SLOTS * self.columns], np.int64)
        counts: np.ndarray[tuple[int], np.dtype[np.int64]]
        counts = row.reshape(SLOTS, self.columns).sum(axis=1)
        return counts

    def work_of(self, workers: int) -> SharedWork:
        """Return the work that each worker has been given; ValueError for too many workers."""
        cells = np.frombuffer(self._cells, np.int64).reshape(_N_CELLS, self.columns)
        return SharedWork(cells[_FIRST_WORKER:][: checked(workers)], self._column)

    # Marks

    def mark(self, mark: Mark, value: int) -> None:
        """Set a mark of this front end."""
        self._cells[(_FIRST_MARK + mark) * self.columns + self._column] = value

    def newest(self, mark: Mark) -> int:
        """Return the largest value of a mark in any column."""
        start = (_FIRST_MARK + mark) * self.columns
        return max(self._cells[start : start + self.columns])

    def others(self, mark: Mark, fresh: int) -> list[int]:
        """Return a mark of other front ends that have set it and whose `BEAT` is `fresh`."""
        return [
            value
            for column in range(self.columns)
            if column != self._column
            and (value := self._mark(mark, column))
            and self._mark(Mark.BEAT, column) >= fresh
        ]

    def _claim(self) -> None:
        with self._locked():
            for column in range(self.columns):
                owner = self._mark(Mark.OWNER, column)
                if owner and not is_alive(owner):
                    self._clear(column)
                    owner = 0
                if not owner:
                    self._clear(column)
                    self._column = column
                    self.mark(Mark.OWNER, os.getpid())
                    return
        raise RuntimeError(f"all {self.columns} columns of the shared counters are in use")

    def _clear(self, column: int) -> None:
        cells = np.frombuffer(self._cells, np.int64).reshape(_N_CELLS, self.columns)
        cells[:, column] = 0

    def _mark(self, mark: Mark, column: int) -> int:
        return self._cells[(_FIRST_MARK + mark) * self.columns + column]

    def _start(self, cell: int) -> int:
        """Return where a cell of the sketch starts; those of the next field are `_step` further."""
        return (_FIRST_BY_KEY + cell) * self.columns

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, for microseconds, and only when processes start and end."""
        if self.fd is None:
            yield
            return
        fcntl.lockf(self.fd, fcntl.LOCK_EX, 1)  # one byte, because the rates have a separate lock
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1)


def now_ns() -> int:
    """Return the time of marks: monotonic, and the same in all processes of a machine."""
    return time.monotonic_ns()
