"""The room that bodies take in the data folder while they arrive.

A body of unknown length could fill the disk before its job is counted. So its bytes are reserved in
steps, in the database, because several processes and hosts share the folder.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from app.jobs.store.arrivals import Arrivals, Counts, Fit
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
    """The room of the data folder for bodies of this process.

    `most` is the folder's limit, and `share` that of one client.
    """

    def __init__(self, arrivals: Arrivals, most: int, share: int) -> None:
        self.arrivals = arrivals
        self.most, self.share = most, share
        self._step = max(1, min(LARGEST_STEP, min(most, share) // STEPS))

    async def reservation(
        self,
        id_: str,
        client: str,
        key: str | None = None,
        check: Callable[[Counts], None] = lambda _counts: None,
    ) -> "Reservation":
        """Count a body that arrives, and return its reservation of nothing yet.

        Raises what `check` raises of what there is; the body does not count then.
        """
        await self.arrivals.begin(id_, client, key, check)
        return Reservation(self, id_)

    async def take(self, id_: str, n_bytes: int) -> int:
        """Reserve `n_bytes` or a step, and return how many; raises StorageFull."""
        fit = Fit.FITS
        for taken in sorted({n_bytes, max(n_bytes, self._step)}, reverse=True):
            fit = await self.arrivals.reserve(id_, taken, self.most, self.share)
            if fit is Fit.FITS:
                return taken
        raise full(fit, self.most, self.share)


class Reservation:
    """The bytes that one body may write, as a context manager that frees them at its end."""

    def __init__(self, room: DataRoom, id_: str) -> None:
        self._room = room
        self._id = id_
        self._held, self._used = 0, 0
        self._loop = asyncio.get_running_loop()

    async def use(self, n_bytes: int) -> None:
        """Count bytes that are about to be written; raises StorageFull."""
        self._used += n_bytes
        missing = self._used - self._held
        if missing > 0 and self._used > UNCOUNTED:
            self._held += await self._room.take(self._id, missing)

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

    def became_job(self) -> None:
        """Say that the job of this body is in the database, which counts it from now on."""
        self._room.arrivals.became_job(self._id)

    async def __aenter__(self) -> "Reservation":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._room.arrivals.end(self._id)


def full(fit: Fit, most: int, share: int) -> StorageFull:
    """Return the error for a body that does not fit."""
    what, limit, setting = "jobs", most, "DARKROOM_MAX_DATA_BYTES"
    if fit is Fit.SHARE_FULL:
        what, limit, setting = "your jobs", share, "three quarters of DARKROOM_MAX_DATA_BYTES"
    return StorageFull(
        f"{what} may store {limit} bytes ({setting}), and this body does not fit; delete finished "
        "jobs, or wait until some expire"
    )


def too_large(most: int) -> TooLarge:
    """Return the error for a body of more than `most` bytes."""
    return TooLarge(f"the body has more than {most} bytes; make several jobs")
