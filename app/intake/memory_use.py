"""Bound the memory of uploads and downloads that a process holds, arriving or complete."""

import threading

from models.domain.errors import Overloaded

IN_MEMORY = 64 << 20
"""Largest number of bytes of all bodies that one process keeps in memory."""

PART = 16
"""Times the size of a body that must be free of the budget, or the body does not stay in memory."""

SMALL, SMALL_BEYOND = 1 << 16, 4
"""Largest body, in bytes, that stays in memory even beyond the budget, and which part of the budget
such bodies have beyond it: 1 / SMALL_BEYOND."""

TINY, TINY_BEYOND = 1 << 15, 2
"""The same of bodies that never go to disk, where each would cost a descriptor. They are refused
beyond their part."""


class MemoryUse:
    """Counter of the bytes that all blobs of a process hold in memory; `limit` is the budget.

    Blobs may be closed on any thread.
    """

    def __init__(self, limit: int = IN_MEMORY) -> None:
        self.limit = limit
        self.held = 0
        self._lock = threading.Lock()

    def add(self, n_bytes: int) -> None:
        """Count more bytes, or fewer where `n_bytes` is negative."""
        with self._lock:
            self.held += n_bytes

    def take(self, size: int, more: int) -> None:
        """Count `more` bytes of a body of `size` bytes that stays in memory; raise Overloaded."""
        if size <= TINY and self.held + more > self.limit + self.limit // TINY_BEYOND:
            raise Overloaded(
                f"bodies hold {self.held} bytes of memory; try again later",
                retry_after=1.0,
                reason="memory_bytes",
            )
        self.add(more)

    def full(self, more: int) -> bool:
        """Return whether a body of `more` bytes should not stay in memory.

        It may take a sixteenth of what is free, so that photos stay in memory long after larger
        bodies go to disk, and large bodies alone never fill the budget. A small one may take what
        is left of the part beyond the budget, and a tiny one stays.
        """
        free = self.limit - self.held
        if more > SMALL:
            return PART * more > free
        return more > TINY and free + self.limit // SMALL_BEYOND < more


MEMORY = MemoryUse()
