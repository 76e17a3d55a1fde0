"""The seam between the front end and a backend: a coroutine per image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from models.domain.job import Completed, Job


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a backend. `service_rate` is jobs per second while busy (0: not known yet).

    `alive` is false while nothing computes. `takes_jpegs`: baseline JPEGs should be sent encoded.
    `decoding` is the share of the busy time, 0…1, in which they were being decoded. `progress`
    grows while the device gets work done; only its growth has a meaning.
    """

    device: str
    queued_jobs: int
    running_jobs: int
    service_rate: float
    alive: bool
    takes_jpegs: bool = False
    decoding: float = 0.0
    progress: float = 0.0

    @property
    def on_gpu(self) -> bool:
        """Return whether every worker computes on a GPU; `device` lists them with commas."""
        return bool(self.device) and not any(
            each.startswith("cpu") for each in self.device.split(", ")
        )


def combined(loads: Sequence[Load], up: Sequence[Load], device: str) -> Load:
    """Return the load of all workers together, of which those `up` accept jobs."""
    return Load(
        device=device,
        queued_jobs=sum([each.queued_jobs for each in loads]),
        running_jobs=sum([each.running_jobs for each in loads]),
        service_rate=sum([each.service_rate for each in up]),
        alive=bool(up),
        takes_jpegs=any([each.takes_jpegs for each in up]),
        decoding=min([each.decoding for each in up], default=0.0),
        progress=sum([each.progress for each in loads]),
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
