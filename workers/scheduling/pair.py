"""Two workers as one: what the GPU has no kernels for goes to the CPU, and holds nobody up."""

from collections.abc import Callable
from typing import Any

from models.domain.backend import Load
from models.domain.job import Job
from workers.scheduling.ticket import Mailbox, Ticket
from workers.scheduling.worker import Worker


class Pair:
    """Jobs that `takes` says yes to go to `first`, all others to `second`; both are started."""

    def __init__(
        self, first: Worker[Any], second: Worker[Any], takes: Callable[[Job], bool]
    ) -> None:
        self._first, self._second = first, second
        self._takes = takes

    def submit(
        self,
        job: Job,
        mailbox: Mailbox,
        tag: object = None,
        on_device: Callable[[bool], None] | None = None,
        alone: bool = False,
    ) -> Ticket:
        """Accept a job, as `Worker.submit`."""
        return self._of(job).submit(job, mailbox, tag, on_device, alone)

    def cancel(self, ticket: Ticket) -> bool:
        """Nobody waits for this job any more, as `Worker.cancel`."""
        return self._of(ticket.job).cancel(ticket)

    def load(self) -> Load:
        """How busy both are; the device and the rate are the first one's."""
        first, second = self._first.load(), self._second.load()
        return Load(
            device=first.device,
            queued_jobs=first.queued_jobs + second.queued_jobs,
            queued_pixels=first.queued_pixels + second.queued_pixels,
            running_jobs=first.running_jobs + second.running_jobs,
            service_rate=first.service_rate,
            alive=first.alive and second.alive,
            takes_jpegs=first.takes_jpegs,
            decoding=first.decoding,
            progress=first.progress + second.progress,
        )

    def set_batching(self, size: int, pixels: int, delay: float) -> None:
        """Form batches by other limits, as `Worker.set_batching`."""
        self._first.set_batching(size, pixels, delay)
        self._second.set_batching(size, pixels, delay)

    def stop(self, timeout: float | None = None) -> None:
        """Refuse new jobs and finish the accepted ones, as `Worker.stop`, one after the other."""
        self._first.stop(timeout)
        self._second.stop(timeout)

    def _of(self, job: Job) -> Worker[Any]:
        return self._first if self._takes(job) else self._second


AnyWorker = Worker[Any] | Pair
