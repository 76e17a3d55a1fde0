"""The contract between the worker and an engine. It contains no queues and no deadlines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from models.domain.errors import ServiceError
from models.domain.image import Pixels
from models.domain.job import Job, Result

SlotT = TypeVar("SlotT")


class EngineLost(Exception):
    """The error of a device that will never work again in this process: no batch may be retried."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a micro-batch: `values` in job order, stage times in seconds."""

    values: Sequence[Result | ServiceError]
    upload: float
    compute: float
    download: float
    decode: float = 0.0


class Engine(Protocol[SlotT]):
    """Protocol of engines, which compute micro-batches in staging slots; a slot owns a batch's
    resources.

    The launch thread calls `acquire` and `launch`, the collect thread `collect`; `release` comes
    from either. All jobs of a batch have the same batch key. A call that raises affects only its
    batch: the worker releases the slot and runs the halves, so the guilty job fails alone. After
    EngineLost the worker answers all jobs with WorkerLost and ends.
    """

    @property
    def device(self) -> str:
        """Return the device: `cpu`, `cuda:0` …"""

    @property
    def takes_jpegs(self) -> bool:
        """Return whether baseline JPEGs should be sent encoded; every engine can decode them."""

    @property
    def collectors(self) -> int:
        """Return the number of collect threads: a single thread if the device computes, a thread
        for each core if the threads compute.
        """

    def share(self, memory: Pixels, n_bytes: int) -> None:
        """Learn of memory, uint8 (n,), whose first bytes stay where they are and will hold images
        of jobs, until nothing uses its array; from any thread.
        """

    def acquire(self) -> SlotT | None:
        """Wait for a free staging slot and return it; None once the engine is closed."""

    def launch(self, slot: SlotT, jobs: Sequence[Job]) -> None:
        """Start the batch; return as soon as it is submitted to the device."""

    def collect(self, slot: SlotT) -> BatchResult:
        """Wait for the batch: a value per job, in order. The only place that waits for it."""

    def release(self, slot: SlotT) -> None:
        """Give the slot back."""

    def warm_up(self) -> None:
        """Do the work that the first batch would otherwise have to do."""

    def close(self) -> None:
        """Wake all threads that wait in `acquire`; further calls do nothing.

        The driver frees the memory of a device when the process ends.
        """
