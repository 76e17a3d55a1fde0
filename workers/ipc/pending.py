"""A front end's jobs that a worker has not answered, and their slots of its arena."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, ServiceError, TooManyPixels
from models.domain.fair_queue import FairQueue, Lack
from models.domain.image import Pixels
from models.domain.job import Failed, Job
from workers.ipc.arena import LARGE, Arena, ArenaAllocator, ArenaSlot
from workers.ipc.conversion import content_of, encode_source
from workers.ipc.frames import Done, Shape

if TYPE_CHECKING:
    from workers.ipc.worker_client import Line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker ended before it answered; `launched`: its device had been given the job."""

    launched: bool


@dataclass(eq=False, slots=True)
class Pending:
    """A submitted job, with its `slot` until that is free again.

    `losses` counts the workers that died with it on their device; after the first it is computed
    `alone`. `worker` is the number of the worker that has it, `expected` its nanoseconds there.
    """

    number: int
    job: Job
    slot: ArenaSlot | None
    waiter: "asyncio.Future[Done | Failed | Lost]"
    line: "Line | None" = None
    losses: int = 0
    alone: bool = False
    worker: int = 0
    expected: int = 0

    def fail(self, error: ServiceError) -> None:
        """Answer with an error, unless there is an answer, or it has to be sent again."""
        if not self.waiter.done():
            self.waiter.set_result(Failed(error))

    def expire(self) -> None:
        """Answer that the deadline has passed."""
        self.fail(DeadlineExceeded("the request's deadline passed"))


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
        """Take a slot back; large ones give their memory back to the kernel."""
        self._returned(slot)
        self._queue.wake()

    def release(self, pending: Pending) -> None:
        """Take a job's slot back if it still has one."""
        slot, pending.slot = pending.slot, None
        if slot is not None:
            self.free(slot)

    async def copied(
        self, pending: Pending, copy: Callable[..., T], *arguments: object, off_loop: bool = False
    ) -> T:
        """Run a function that copies to or from a job's slot, on a thread if that takes
        milliseconds.

        With `off_loop` it always runs on a thread: many jobs are copied at the same time. If it is
        cancelled meanwhile, the slot is taken back as soon as the copy has ended.
        """
        slot = pending.slot
        assert slot is not None
        if slot.size < LARGE and not off_loop:
            return copy(*arguments)
        copying = asyncio.ensure_future(asyncio.to_thread(copy, *arguments))
        try:
            # Cancelling cannot stop the thread, which still writes into the slot. The shield keeps
            # the future of the copy, by which the slot is freed when the thread has ended.
            return await asyncio.shield(copying)
        except asyncio.CancelledError:
            pending.slot = None
            copying.add_done_callback(lambda _: self.free(slot))
            raise

    def write(self, pending: Pending) -> None:
        """Copy the job's pixels, or its file, into its slot."""
        assert pending.slot is not None
        shape, _ = encode_source(pending.job.image)
        content = content_of(pending.job.image).reshape(shape)
        self._arena.pixels(pending.slot, shape)[...] = content

    def read(self, pending: Pending, shape: Shape) -> Pixels:
        """Return a copy of the pixels, or of the file, in the job's slot."""
        assert pending.slot is not None
        return self._arena.pixels(pending.slot, shape).copy()

    def refuse(self, error: ServiceError) -> None:
        """Raise an error in every job that still waits."""
        self._queue.refuse(error)

    def _returned(self, slot: ArenaSlot) -> None:
        self._arena.forget(slot)
        self._room.give_back(slot)
