"""What happens when a job has ended: its results are written to storage, its webhook is called.

Both are rows of the database, so a service that was killed goes on with them.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from sqlalchemy.exc import SQLAlchemyError

from app.jobs.store.endings import DESTINATION, DONE, FAILED, Ending, EndingRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, State
from app.jobs.work import IMAGES, RESULTS, ImageOutput
from app.storage.storage import Storage
from app.webhooks import Delivery, WebhookSender
from models.domain.errors import InvalidParameter, ServiceError, StorageFull

log = logging.getLogger("darkroom.jobs")

LOOK = 1.0
"""Seconds between two looks for jobs that have ended."""

AT_ONCE = 32
"""Endings that one process works on at a time."""

AGAIN = 5.0
"""Seconds after which an ending is tried again whose files or database failed."""

PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Seconds before each further try, as Standard Webhooks advises; after the last there is none."""

LONGEST_PAUSE = 86400.0
"""Seconds that a receiver may ask to wait with `Retry-After`."""

Results = Callable[[Job], AsyncGenerator[bytes, None]]


class Endings:
    """Works on the endings of all jobs; `chance` returns a number from 0 to 1 for the jitter."""

    def __init__(
        self,
        rows: EndingRows,
        jobs: JobRows,
        results: Results,
        storage: Storage,
        sender: WebhookSender,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.rows = rows
        self._jobs = jobs
        self._results = results
        self._storage = storage
        self.sender = sender
        self._chance = chance
        self._held: set[Ending] = set()
        self._one_ended = asyncio.Event()

    async def run(self) -> None:
        """Work until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._one_ended.clear()
                for ending in await self._claimed():
                    self._held.add(ending)  # now: the next claim comes before the first step
                    group.create_task(self._end(ending))
                with suppress(TimeoutError):
                    # `wait_for` of Python 3.11 drops a cancellation that comes with the event.
                    async with asyncio.timeout(LOOK):
                        await self._one_ended.wait()

    async def _end(self, ending: Ending) -> None:
        """Try an ending once and record the result; a fault of ours does not stop the others.

        An ending whose result the database does not take is claimed again, because it is not held.
        """
        try:
            await self.end(ending)
        except (SQLAlchemyError, OSError) as error:
            log.warning("the %s of job %s waits: %s", ending.kind, ending.job, error)
            with suppress(SQLAlchemyError, OSError):
                reason = "the server's files or database failed"
                await self.rows.postpone(ending, AGAIN, reason, counts=False)
        except Exception as error:
            log.error("the %s of job %s failed", ending.kind, ending.job, exc_info=error)
            with suppress(SQLAlchemyError, OSError):
                await self._again(ending, "a fault of the server; its log has the cause", None)
        finally:
            self._held.discard(ending)
            self._one_ended.set()

    async def end(self, ending: Ending) -> None:
        """Try an ending once and record the result; raises SQLAlchemyError and OSError."""
        job = await self._jobs.find(ending.job)
        if job is None:
            await self.rows.forget()
        elif ending.kind == DESTINATION:
            await self._write(ending, job)
        else:
            await self._send(ending, job)

    async def _claimed(self) -> list[Ending]:
        if len(self._held) == AT_ONCE:
            return []
        try:
            return await self.rows.claim(AT_ONCE - len(self._held), self._held)
        except (SQLAlchemyError, OSError) as error:
            log.warning("the database of jobs does not answer: %s", error)
        except Exception as error:  # a fault of ours must not end the work on all endings
            log.error("a look at the endings of jobs failed", exc_info=error)
        return []

    async def _write(self, ending: Ending, job: Job) -> None:
        """Write the results as one file; a repeated write gives the same bytes."""
        if job.state is State.EXPIRED:
            await self.rows.finish(ending, FAILED, "the results expired before they were written")
            return
        try:
            folder = self._storage.writable(ending.target)
            await ImageOutput(self._storage).check(ending.target)
            for each in (folder, folder.below(IMAGES)):
                await self._storage.tidy(each)
            target = folder.below(RESULTS)
            async with aclosing(self._results(job)) as results:
                await self._storage.write(target, results)
            await self._storage.settle(folder)
        except ServiceError as error:
            # A webhook waits for this, and must not wait for days: neither where another try cannot
            # help, nor where it is to tell that the job failed for want of room.
            full = job.state is State.FAILED and isinstance(error, StorageFull)
            if full or isinstance(error, InvalidParameter):
                await self.rows.finish(ending, FAILED, error.detail)
            else:
                await self._again(ending, error.detail, None)
        else:
            await self.rows.finish(ending, DONE, f"{job.done} records are in {target}")

    async def _send(self, ending: Ending, job: Job) -> None:
        body = ending.body or message(job)
        if ending.body is None:
            await self.rows.keep(ending, body)
        tried = await self.sender.send(ending.target, f"msg_{job.id}", body.encode(), job.client)
        if tried.delivery is Delivery.DELIVERED:
            await self.rows.finish(ending, DONE, tried.reason)
        elif tried.delivery is Delivery.GONE:
            await self.rows.finish(ending, FAILED, tried.reason)
        else:
            await self._again(ending, tried.reason, tried.pause)

    async def _again(self, ending: Ending, reason: str, pause: float | None) -> None:
        """Try again later, with a tenth of jitter, or give up."""
        if ending.attempts >= len(PAUSES):
            log.warning("gave up the %s of job %s: %s", ending.kind, ending.job, reason)
            await self.rows.finish(ending, FAILED, reason)
            return
        usual = PAUSES[ending.attempts] * (1 + self._chance() / 10)
        await self.rows.postpone(ending, max(usual, min(pause or 0.0, LONGEST_PAUSE)), reason)


def message(job: Job) -> str:
    """Return the JSON of a webhook: its type, the time at which the job ended, and counts."""
    ended = datetime.fromtimestamp(round(job.finished or job.created, 3), UTC)
    state = _end_of(job)
    succeeded = job.done - job.failed
    items = {"total": job.total, "done": job.done, "succeeded": succeeded, "failed": job.failed}
    data = {
        "id": job.id,
        "state": state.value,
        "operation": job.operation,
        "items": items,
        "results": f"/jobs/{job.id}/results",
    }
    text = {"type": f"job.{state.value}", "timestamp": ended.isoformat(), "data": data}
    return json.dumps(text, separators=(",", ":"))


def _end_of(job: Job) -> State:
    """Return the state in which a job ended, also of one that has expired since."""
    if job.state is not State.EXPIRED:
        return job.state
    if job.problem is not None:
        return State.FAILED
    return State.SUCCEEDED if job.done == job.total else State.CANCELLED
