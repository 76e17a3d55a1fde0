"""The room that bodies take in the data folder while they arrive.

A body of unknown length could fill the disk before its job is counted. So its bytes are reserved in
steps, in the database, because several processes and hosts share the folder.
"""

import asyncio
from types import TracebackType

from app.jobs.store.owners import Owner
from models.domain.errors import Overloaded, TooLarge
from models.domain.job_errors import StorageFull

UNCOUNTED = 1 << 18
"""Bytes that a body may have before anything is reserved for it: most manifests are smaller, and a
reservation is two transactions."""

STEPS, LARGEST_STEP = 64, 64 << 20
"""The steps that the folder's limit is divided into, and the most bytes of one step."""

PATIENCE = 60.0
"""Seconds that a thread waits for a reservation."""


class DataRoom:
    """The room of the data folder for bodies of this process; `most` is the folder's limit."""

    def __init__(self, owner: Owner, most: int) -> None:
        self._owner = owner
        self._most = most
        self._step = max(1, min(LARGEST_STEP, most // STEPS))

    def reservation(self) -> "Reservation":
        """Return a reservation of nothing yet, for one body."""
        return Reservation(self)

    async def take(self, n_bytes: int) -> int:
        """Reserve `n_bytes` or a step, and return how many; raises StorageFull."""
        taken = max(n_bytes, self._step)
        if await self._owner.reserve(taken, self._most):
            return taken
        if n_bytes < taken and await self._owner.reserve(n_bytes, self._most):
            return n_bytes
        raise StorageFull(
            f"jobs may store {self._most} bytes (DARKROOM_MAX_DATA_BYTES), and this body does not "
            "fit; delete finished jobs, or wait until some expire"
        )

    async def give_back(self, n_bytes: int) -> None:
        """Free what was reserved."""
        await self._owner.free(n_bytes)


class Reservation:
    """The bytes that one body may write, as a context manager that frees them at its end."""

    def __init__(self, room: DataRoom) -> None:
        self._room = room
        self._held, self._used = 0, 0
        self._loop = asyncio.get_running_loop()

    async def use(self, n_bytes: int) -> None:
        """Count bytes that are about to be written; raises StorageFull."""
        self._used += n_bytes
        missing = self._used - self._held
        if missing > 0 and self._used > UNCOUNTED:
            self._held += await self._room.take(missing)

    def use_on_thread(self, n_bytes: int) -> None:
        """Do what `use` does, from another thread than that of the event loop.

        Raises Overloaded if the database does not answer.
        """
        if self._used + n_bytes <= max(self._held, UNCOUNTED):
            self._used += n_bytes
            return
        reserving = asyncio.run_coroutine_threadsafe(self.use(n_bytes), self._loop)
        try:
            reserving.result(PATIENCE)
        except TimeoutError:
            reserving.cancel()
            raise Overloaded("the database of jobs does not answer; try again later", 5.0) from None

    async def __aenter__(self) -> "Reservation":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._held:
            await self._room.give_back(self._held)


def too_large(most: int) -> TooLarge:
    """Return the error for a body of more than `most` bytes."""
    return TooLarge(
        f"the body has more than {most} bytes (DARKROOM_MAX_JOB_BYTES); make several jobs"
    )
