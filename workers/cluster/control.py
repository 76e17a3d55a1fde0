"""Messages to all replicas: questions for their load, and jobs that are not wanted any more."""

import asyncio
import logging
from contextlib import suppress

import msgspec

from workers.cluster.messages import REPORT, Report
from workers.cluster.replicas import Replicas
from workers.cluster.serve_handle import Workers

log = logging.getLogger("darkroom.cluster")

MOST_MESSAGES = 8
"""Messages about dropped jobs that wait for their answers at a time."""


class Control:
    """Asks all replicas for their load every `every` seconds, and drops jobs of `front_end`.

    Which replica has a job is known to Ray Serve alone, so all of them are told.
    """

    def __init__(self, workers: Workers, replicas: Replicas, front_end: str, every: float) -> None:
        self._workers = workers
        self._replicas = replicas
        self._front_end = front_end
        self._every = every
        self._dropped: list[int] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._asking = asyncio.create_task(self._keep_asking())

    def drop(self, number: int) -> None:
        """Tell the replicas soon that a job is not wanted any more, together with others."""
        if not self._dropped:
            asyncio.get_running_loop().call_soon(self._tell)
        self._dropped.append(number)

    async def aclose(self) -> None:
        """Wait for the answers to the questions of now; Ray's futures bear no cancellation."""
        self._closing.set()
        await asyncio.gather(self._asking, *self._telling, return_exceptions=True)

    def _tell(self) -> None:
        """Send what was dropped; while replicas are slow to answer it gathers."""
        if self._dropped and len(self._telling) < MOST_MESSAGES and not self._closing.is_set():
            numbers, self._dropped = self._dropped, []
            task = asyncio.create_task(self._cancel(numbers))
            self._telling.add(task)
            task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        self._telling.discard(task)
        self._tell()

    async def _cancel(self, numbers: list[int]) -> None:
        with suppress(Exception):  # what is not dropped is computed in vain, and harms no other job
            await self._workers.ask_all("cancel", self._front_end, numbers)

    async def _keep_asking(self) -> None:
        while not self._closing.is_set():
            try:
                answers = await self._workers.ask_all("report")
                reports = [each for each in map(_decoded, answers) if each is not None]
                self._replicas.all_reported(reports, complete=0 < len(reports) == len(answers))
            except Exception as error:  # the next attempt is protected
                log.warning("the replicas could not be asked for their load: %r", error)
                self._replicas.all_reported([], complete=False)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._every)


def _decoded(answer: bytes | None) -> Report | None:
    """Return a replica's report; None if it did not answer, or not with a report."""
    try:
        return None if answer is None else REPORT.decode(answer)
    except msgspec.MsgspecError as error:
        log.warning("a report of a replica cannot be read: %r", error)
        return None
