"""Tickets of accepted jobs, and the delivery of their outcomes. It uses no event loop."""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.domain.job import Job, Lane, Outcome
from workers.operations import most_pixels

log = logging.getLogger("darkroom.worker")


@dataclass(slots=True, eq=False)
class Ticket:
    """An accepted job. It ends exactly once: picked and answered, dropped, or cancelled.

    `tag` belongs to the caller; `queued` and `enqueued_at` belong to the batcher. `on_device` is
    called with True right before the device is given the job, and with False when it is done with
    it, before it is given another batch. A job that is `alone` shares the device with no other.
    """

    job: Job
    mailbox: "Mailbox"
    tag: Any = None
    on_device: Callable[[bool], None] | None = None
    alone: bool = False
    key: tuple[Hashable, Lane, bool] = field(init=False)
    pixels: int = field(init=False)
    enqueued_at: float = 0.0
    queued: bool = False
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.key = (self.job.operation.batch_key, self.job.lane, self.alone)
        self.pixels = most_pixels(self.job)

    def is_over(self, now: float) -> bool:
        """Return whether the job was cancelled or has expired."""
        return self.cancelled or self.job.deadline.expired(now)


Mailbox = Callable[[Sequence[tuple[Ticket, Outcome]]], None]
"""Receiver of outcomes: called once per batch, from a worker thread.

The outcome of a ticket that was cancelled after its launch arrives too: only then is its image no
longer in use.
"""


def deliver(outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
    """Call each mailbox once with its outcomes."""
    boxes: dict[Mailbox, list[tuple[Ticket, Outcome]]] = {}
    for pair in outcomes:
        boxes.setdefault(pair[0].mailbox, []).append(pair)
    for mailbox, pairs in boxes.items():
        try:
            mailbox(pairs)
        except Exception:  # protects the worker's thread from a caller whose loop is closed
            log.warning("outcomes could not be delivered", exc_info=True)
