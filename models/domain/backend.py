"""The seam between the front end and whatever executes: one coroutine per image."""

from dataclasses import dataclass
from typing import Protocol

from models.domain.job import Completed, Job


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a backend is. `service_rate` is jobs per second while busy (0: not known yet).

    While nothing computes (`alive` is false) the rate is the last one known, and `back_in` the
    seconds until something is expected to compute again: 0 while it is alive, None when nothing
    is expected. `takes_jpegs`: baseline JPEGs had better be sent encoded. `decoding` is the share
    of the busy time, 0…1, in which they were being decoded. `progress` grows while the device gets
    work done, by an amount that means nothing.
    """

    device: str
    queued_jobs: int
    queued_pixels: int
    running_jobs: int
    service_rate: float
    alive: bool
    takes_jpegs: bool = False
    decoding: float = 0.0
    back_in: float | None = 0.0
    progress: float = 0.0


class Backend(Protocol):
    """Where images go to be worked on.

    Cancelling `run` abandons the job: if it has not reached the device, it never will.
    """

    async def run(self, job: Job) -> Completed:
        """The answer of one job, before its deadline; raises ServiceError."""

    def load(self) -> Load:
        """For readiness, metrics and choosing a device; never blocks."""

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then stop."""
