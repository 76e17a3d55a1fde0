"""Shared memory that carries pixels between a front end and its workers, and its ownership.

A front end makes one arena and alone allocates its slots. It owns a slot until the `Submit` frame
that names it is written; from then on the worker owns it, until its `Done` frame is written. A
cancelled job does not free its slot, `Done` does. The slots of a worker that died come back when
its socket closes, which the kernel does for it.

The memory is an unnamed file: it is released with the last process that maps it, however that
ended. After the slots there is one byte for each page of them. The worker sets it when a job whose
slot begins there is given to the device: after a crash the front end reads which jobs may be
guilty.
"""

import asyncio
import bisect
import mmap
import os
from typing import NamedTuple

import numpy as np

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, ServiceError, TooManyPixels
from models.domain.fair_queue import FairQueue, Lack
from models.domain.image import Pixels

PAGE = mmap.PAGESIZE
LARGE = 4 << 20
"""Bytes from which a free slot's memory is given back to the kernel, which costs page faults."""


KEPT = 32 << 20
"""Bytes at the start of an arena that keep their memory, so that a device may read them where they
are. The first free slots are taken first, so most files lie there."""


class ArenaSlot(NamedTuple):
    """A piece of an arena, in bytes."""

    offset: int
    size: int


class Arena:
    """The memory itself, mapped by every process that has been given its file descriptor `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        whole = os.fstat(fd).st_size
        n_pages = whole // PAGE
        # The marks take one byte for each page of slots, at the end: of n pages, ceil(n / (PAGE +
        # 1)).
        self.size = (n_pages - -(-n_pages // (PAGE + 1))) * PAGE
        self._memory = mmap.mmap(fd, whole)
        self._bytes = np.frombuffer(self._memory, np.uint8)

    @classmethod
    def create(cls, size: int) -> "Arena":
        """Return a new arena of `size` bytes, which cost nothing until they are written. Linux
        only.
        """
        fd = os.memfd_create("darkroom-arena", os.MFD_CLOEXEC)
        n_pages = -(-size // PAGE)
        os.ftruncate(fd, (n_pages + -(-n_pages // PAGE)) * PAGE)
        return cls(fd)

    def mark(self, slot: ArenaSlot, launched: bool) -> None:
        """Note whether the device has been given the job in this slot."""
        self._memory[self.size + slot.offset // PAGE] = launched

    def launched(self, slot: ArenaSlot) -> bool:
        """Return whether the device had been given the job in this slot."""
        return bool(self._memory[self.size + slot.offset // PAGE])

    def pixels(self, slot: ArenaSlot, shape: tuple[int, int, int]) -> Pixels:
        """Return the slot as an image, uint8 of `shape`; raise ValueError if it exceeds slot or
        arena.
        """
        length = shape[0] * shape[1] * shape[2]
        inside = slot.offset >= 0 and slot.offset + slot.size <= self.size
        if not inside or not 0 < length <= slot.size or min(shape) < 1:
            raise ValueError(f"no image {shape} in {slot} of an arena of {self.size} bytes")
        return self._bytes[slot.offset : slot.offset + length].reshape(shape)

    @property
    def kept(self) -> tuple[Pixels, int]:
        """Return the whole memory, and how many bytes at its start stay where they are."""
        return self._bytes, min(KEPT, self.size)

    def forget(self, slot: ArenaSlot) -> None:
        """Give a large slot's memory back to the kernel, but for what is kept; its content is
        lost.
        """
        start, end = max(slot.offset, KEPT), slot.offset + slot.size
        if slot.size >= LARGE and start < end and hasattr(mmap, "MADV_REMOVE"):
            # MADV_REMOVE makes a hole in the file itself, so the memory is free in every process
            # that maps it. MADV_DONTNEED would only drop the page table entries of this process.
            self._memory.madvise(mmap.MADV_REMOVE, start, end - start)

    def close(self) -> None:
        """Close the descriptor; the mapping lives as long as an image in it."""
        os.close(self.fd)


class ArenaAllocator:
    """Allocator of slots in `size` bytes: first fit, whole pages. It touches no memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)]

    def take(self, n_bytes: int) -> ArenaSlot | None:
        """Return a slot of at least `n_bytes` bytes, or None while there is none."""
        wanted = max(1, -(-n_bytes // PAGE)) * PAGE
        for index, (offset, size) in enumerate(self._free):
            if size >= wanted:
                rest = [(offset + wanted, size - wanted)] if size > wanted else []
                self._free[index : index + 1] = rest
                return ArenaSlot(offset, wanted)
        return None

    def give_back(self, slot: ArenaSlot) -> None:
        """Free a slot and merge it with its free neighbours."""
        index = bisect.bisect(self._free, (slot.offset, 0))
        start, end = slot.offset, slot.offset + slot.size
        last = index
        # Without merging, free space would end as many small pieces, none of which holds a large
        # image.
        if index and sum(self._free[index - 1]) == start:
            index -= 1
            start = self._free[index][0]
        if last < len(self._free) and self._free[last][0] == end:
            end += self._free[last][1]
            last += 1
        self._free[index:last] = [(start, end - start)]


class ArenaSlots:
    """Queue for the slots of an arena, first come, first served; belongs to one event loop."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._room = ArenaAllocator(arena.size)
        self._queue = FairQueue[int, ArenaSlot](
            lambda n_bytes, _: self._room.take(n_bytes) or Lack.ALL, self._returned
        )

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for a slot."""
        return len(self._queue)

    async def take(self, n_bytes: int, deadline: Deadline) -> ArenaSlot:
        """Return a slot of at least `n_bytes` bytes; wait for it, at most until the deadline."""
        if n_bytes > self._room.size:
            raise TooManyPixels(f"an image of {n_bytes:,} bytes has no room on this server")
        if (slot := self._queue.take_now(None, n_bytes)) is not None:
            return slot  # without the 5 µs of a timeout
        try:
            async with asyncio.timeout_at(deadline.alarm):
                return await self._queue.take(None, n_bytes)
        except TimeoutError:
            raise DeadlineExceeded("the request's deadline passed") from None

    def free(self, slot: ArenaSlot) -> None:
        """Take a slot back; large slots give their memory back to the kernel."""
        self._returned(slot)
        self._queue.wake()

    def refuse(self, error: ServiceError) -> None:
        """Raise an error in every job that still waits."""
        self._queue.refuse(error)

    def _returned(self, slot: ArenaSlot) -> None:
        self._arena.forget(slot)
        self._room.give_back(slot)
