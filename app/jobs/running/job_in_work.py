"""A job that this process works on: what is wanted, where its images are, and its slots."""

import asyncio
from dataclasses import dataclass

from app.jobs.inputs import Inputs
from app.jobs.running.slots import SharedSlots
from app.jobs.running.work import Work
from app.jobs.store.values import Job


class JobSlots:
    """The images of one job that are in work at a time: at most `concurrency` of the job, and its
    part of `shared`, which has the images of all jobs.
    """

    def __init__(self, shared: SharedSlots, job: Job) -> None:
        self._shared = shared
        self._key = job.client, job.id
        self._own = None if job.concurrency is None else asyncio.Semaphore(job.concurrency)

    async def take(self) -> None:
        """Wait for a slot; the job's own limit first, so that it keeps none from other jobs."""
        if self._own is None:
            await self._shared.take(*self._key)
            return
        await self._own.acquire()
        try:
            await self._shared.take(*self._key)
        except BaseException:
            self._own.release()
            raise

    def give(self, *_: object) -> None:
        """Give a slot back."""
        self._shared.give(*self._key)
        if self._own is not None:
            self._own.release()

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give()


@dataclass(frozen=True, slots=True)
class JobInWork:
    """A job, the work on each of its images, its inputs and its slots."""

    job: Job
    work: Work
    inputs: Inputs
    slots: JobSlots
