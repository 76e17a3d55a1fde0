"""Count the connections of each front end, so that the one with the fewest takes the next."""

import mmap
import os
from typing import Protocol

import numpy as np

from app.system.processes import is_alive

ABSENT = np.iinfo(np.int32).max
"""The count of a front end that does not accept."""

_BYTES = 4
"""Bytes of a count and of a process id."""


class Balance(Protocol):
    """The distribution of connections over the front ends."""

    def fewest(self, number: int, count: int) -> bool:
        """Store the `count` of front end `number`; return whether no known count is lower."""

    def leave(self, number: int) -> None:
        """Note that front end `number` accepts no more connections."""


class Alone:
    """The balance of a server that has one process."""

    def fewest(self, _number: int, _count: int) -> bool:
        """Return True: there is no other one."""
        return True

    def leave(self, number: int) -> None:
        """Do nothing: no other front end takes connections."""


class ConnectionCounts:
    """Connection counts of `n` front ends, in memory that they share as a descriptor.

    A rolling restart needs two places for each front end: the old process and the new one.
    """

    def __init__(self, fd: int, n: int) -> None:
        self.fd = fd
        memory = mmap.mmap(fd, 2 * n * _BYTES)
        self._counts = np.frombuffer(memory, np.int32, n)
        self._pids = np.frombuffer(memory, np.int32, n, offset=n * _BYTES)

    @classmethod
    def create(cls, n: int) -> "ConnectionCounts":
        """Create counts of zero. Linux only."""
        fd = os.memfd_create("darkroom-tally", os.MFD_CLOEXEC)
        os.ftruncate(fd, 2 * n * _BYTES)
        return cls(fd, n)

    @classmethod
    def empty(cls, n: int) -> "ConnectionCounts":
        """Create counts in which no front end accepts: each enters when it starts. Linux only."""
        counts = cls.create(n)
        for number in range(n):
            counts.leave(number)
        return counts

    def enter(self, number: int) -> int:
        """Return the place of front end `number`, in the first half or its other one in the second.

        What a process that has ended left in either is forgotten.
        """
        places = (number, number + len(self._counts) // 2)
        for place in places:
            if not self._pids[place] or not is_alive(int(self._pids[place])):
                self.leave(place)
        # If processes that still run have both places, the new one takes over the first: a wrong
        # count makes the balance worse, and nothing else.
        free = next((each for each in places if not self._pids[each]), number)
        self._counts[free], self._pids[free] = 0, os.getpid()
        return free

    def leave(self, number: int) -> None:
        """Note that front end `number` accepts no more, so that no other one waits for it."""
        self._counts[number], self._pids[number] = ABSENT, 0

    def fewest(self, number: int, count: int) -> bool:
        """Store the `count` of front end `number`; return whether no known count is lower."""
        self._counts[number] = count
        return bool(count <= self._counts.min())

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)
