"""A job that this process works on: what is wanted, where its images are, and its slots."""

import asyncio
from dataclasses import dataclass

from app.jobs.inputs import Inputs
from app.jobs.running.work import Work
from app.jobs.store.values import Job


class JobSlots:
    """The images of one job that are in work at a time: at most `most`, and those of all jobs.

    `shared` counts the images of all jobs. None: the job has no limit of its own.
    """

    def __init__(self, shared: asyncio.Semaphore, most: int | None) -> None:
        self._shared = shared
        self._own = None if most is None else asyncio.Semaphore(most)

    async def take(self) -> None:
        """Wait for a slot; the job's own limit first, so that it keeps none from other jobs."""
        if self._own is None:
            await self._shared.acquire()
            return
        await self._own.acquire()
        try:
            await self._shared.acquire()
        except BaseException:
            self._own.release()
            raise

    def give(self, *_: object) -> None:
        """Give a slot back."""
        self._shared.release()
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
