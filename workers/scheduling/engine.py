"""The contract between the worker and whatever computes. Knows neither queues nor deadlines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from models.domain.errors import ServiceError
from models.domain.job import Job, Result

SlotT = TypeVar("SlotT")


class EngineLost(Exception):
    """The device will never work again in this process: no batch may be tried once more."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one micro-batch gave: `values` in job order, stage times in seconds."""

    values: Sequence[Result | ServiceError]
    upload: float
    compute: float
    download: float
    decode: float = 0.0


class Engine(Protocol[SlotT]):
    """Computes micro-batches in staging slots; a slot owns all that one batch needs.

    The launch thread calls `acquire` and `launch`, the collect thread `collect`; `release` comes
    from either. All jobs of a batch have one batch key. A call that raises costs only its batch:
    the worker releases the slot and runs the halves, so the guilty job fails alone. After
    EngineLost the worker answers everybody with WorkerLost and ends.
    """

    @property
    def device(self) -> str:
        """`cpu`, `cuda:0` …"""

    @property
    def takes_jpegs(self) -> bool:
        """Whether baseline JPEGs had better be sent encoded; every engine can decode them."""

    @property
    def collectors(self) -> int:
        """Collect threads: one where the device computes, one a core where they compute."""

    def acquire(self) -> SlotT | None:
        """A free staging slot, waiting for one; None once the engine is closed."""

    def launch(self, slot: SlotT, jobs: Sequence[Job]) -> None:
        """Start the batch; returns as soon as it is on its way."""

    def collect(self, slot: SlotT) -> BatchResult:
        """Wait for the batch: one value per job, in order. The only place that waits for it."""

    def release(self, slot: SlotT) -> None:
        """Give the slot back."""

    def warm_up(self) -> None:
        """Do what the first batch would otherwise pay for."""

    def close(self) -> None:
        """Wake whoever waits in `acquire`. Twice is as good as once.

        What a device holds goes with the process: its driver takes it back.
        """
