"""A micro-batch in progress: its jobs, and the meaning of its result for each of them.

It uses no threads and no queues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.domain.errors import ServiceError
from models.domain.job import Completed, Failed, Outcome, ReleaseReason, Trace
from workers.scheduling.engine import BatchResult
from workers.scheduling.ticket import Ticket

Observer = Callable[["Batch", float], None]
"""Sees every finished batch, and the seconds that it kept the device busy."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Jobs with the same batch key, with the reason and the moment of their release.

    `id` names the batch among the batches of all workers, by the process id of the worker and a
    number; the halves of a failed batch have new ids.
    """

    tickets: Sequence[Ticket]
    reason: ReleaseReason
    launched_at: float
    id: str = ""

    def halves(self) -> "tuple[Batch, Batch]":
        """Return both halves, to be launched again."""
        middle = len(self.tickets) // 2
        first, second = self.tickets[:middle], self.tickets[middle:]
        return replace(self, tickets=first, id=""), replace(self, tickets=second, id="")

    def note_device(self, has_it: bool) -> None:
        """Tell the owners of the jobs whether the device has them."""
        for ticket in self.tickets:
            if ticket.on_device is not None:
                ticket.on_device(has_it)

    def outcomes(self, result: BatchResult, max_batch_size: int) -> list[tuple[Ticket, Outcome]]:
        """Return every job's own outcome."""
        size = len(self.tickets)
        outcomes: list[tuple[Ticket, Outcome]] = []
        for ticket, value in zip(self.tickets, result.values, strict=True):
            if isinstance(value, ServiceError):
                outcomes.append((ticket, Failed(value)))
                continue
            trace = Trace(
                self.launched_at - ticket.enqueued_at,
                result.upload,
                result.decode,
                result.compute,
                result.download,
                size,
                max_batch_size,
                self.reason,
                self.launched_at,
                self.id,
            )
            outcomes.append((ticket, Completed(value, trace)))
        return outcomes
