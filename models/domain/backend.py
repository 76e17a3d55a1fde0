"""The seam between the front end and a backend: a coroutine per image."""

from dataclasses import dataclass
from typing import Protocol

from models.domain.job import Completed, Job


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a backend. `service_rate` is jobs per second while busy (0: not known yet).

    While nothing computes (`alive` is false) the rate is the last known rate, and `back_in` the
    seconds until computing is expected to resume: 0 while it is alive, None if no return is
    expected. `takes_jpegs`: baseline JPEGs should be sent encoded. `decoding` is the share of the
    busy time, 0…1, in which they were being decoded. `progress` grows while the device gets work
    done; only its growth has a meaning.
    """

    device: str
    queued_jobs: int
    running_jobs: int
    service_rate: float
    alive: bool
    takes_jpegs: bool = False
    decoding: float = 0.0
    back_in: float | None = 0.0
    progress: float = 0.0

    @property
    def on_gpu(self) -> bool:
        """Return whether every worker computes on a GPU; `device` lists them with commas."""
        return bool(self.device) and not any(
            each.startswith("cpu") for each in self.device.split(", ")
        )


class Backend(Protocol):
    """Protocol of the executors of jobs.

    Cancelling `run` abandons the job: if it has not reached the device, it never will.
    """

    async def run(self, job: Job) -> Completed:
        """Return the answer of a job, before its deadline; raise ServiceError."""

    def load(self) -> Load:
        """Return the load, for readiness, metrics and the choice of a device; never block."""

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted jobs, then stop."""
