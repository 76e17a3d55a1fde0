"""A front end's jobs that a worker has not answered."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.domain.errors import DeadlineExceeded, ServiceError
from models.domain.job import Failed, Job
from workers.ipc.arena import ArenaSlot
from workers.ipc.frames import Done

if TYPE_CHECKING:
    from workers.ipc.worker_client import Line


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker ended before it answered; `launched`: its device had been given the job."""

    launched: bool


@dataclass(eq=False, slots=True)
class Pending:
    """A submitted job, with its `slot` until that is free again.

    `losses` counts the workers that died with it on their device; after the first it is computed
    `alone`. `worker` is the number of the worker that has it, `expected` its nanoseconds there.
    """

    number: int
    job: Job
    slot: ArenaSlot | None
    waiter: "asyncio.Future[Done | Failed | Lost]"
    line: "Line | None" = None
    losses: int = 0
    alone: bool = False
    worker: int = 0
    expected: int = 0

    def fail(self, error: ServiceError) -> None:
        """Answer with an error, unless there is an answer, or it has to be sent again."""
        if not self.waiter.done():
            self.waiter.set_result(Failed(error))

    def expire(self) -> None:
        """Answer that the deadline has passed."""
        self.fail(DeadlineExceeded("the request's deadline passed"))
