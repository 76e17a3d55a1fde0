"""The backend for tests, laptops and the command line: a worker in threads of this process."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from models.domain.alarms import alarms
from models.domain.backend import Load
from models.domain.errors import DeadlineExceeded
from models.domain.job import Completed, Failed, Job, Outcome
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker


class LocalBackend:
    """Backend on a started worker of this process; a single event loop uses it at a time.

    `drain_timeout`: seconds that `aclose` gives the accepted jobs; None waits for all of them.
    """

    def __init__(self, worker: Worker[Any], drain_timeout: float | None = None) -> None:
        self._worker = worker
        self._drain_timeout = drain_timeout

    async def run(self, job: Job, *, alone: bool = False) -> Completed:
        """Return the answer of a job; enforce the deadline here, so that a hung engine answers
        504. A job that is `alone` shares the device with no other.
        """
        waiter: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        ticket = self._worker.submit(job, _deliver, waiter, alone=alone)
        expire = partial(self._expire, ticket, waiter)
        # A request that is given up cancels this call; the images of jobs go on.
        alarm = alarms().set(job.deadline, expire, ends_early=False)
        try:
            outcome = await waiter
        except BaseException:
            self._worker.cancel(ticket)
            raise
        finally:
            alarm.cancel()
        if isinstance(outcome, Failed):
            try:
                raise outcome.error
            finally:  # the error's traceback holds this frame, which must not hold the image
                del outcome, waiter, ticket, job, alarm, expire
        return outcome

    def load(self) -> Load:
        """Return the load of the worker."""
        return self._worker.load()

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, then stop."""
        await asyncio.to_thread(self._worker.stop, self._drain_timeout)

    def _expire(self, ticket: Ticket, waiter: asyncio.Future[Outcome]) -> None:
        if not waiter.done():
            self._worker.cancel(ticket)
            waiter.set_result(Failed(DeadlineExceeded("the request's deadline passed")))


def _deliver(outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
    """Hand the outcomes of a batch to their loop: they cost the loop a single wake-up."""
    outcomes[0][0].tag.get_loop().call_soon_threadsafe(_resolve, outcomes)


def _resolve(outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
    for ticket, outcome in outcomes:
        if not ticket.tag.done():
            ticket.tag.set_result(outcome)
