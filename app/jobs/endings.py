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

from app.jobs.results import IMAGES, RESULTS
from app.jobs.store import (
    DESTINATION,
    DONE,
    FAILED,
    HOLD,
    TO_DO,
    DatabaseFailed,
    Ending,
    Job,
    JobStore,
    State,
)
from app.jobs.webhooks import WebhookSender
from app.storage.storage import Storage
from models.domain.errors import InvalidParameter, ServiceError, StorageFull

log = logging.getLogger("darkroom.jobs")

LOOK = 1.0
"""Seconds between two looks for jobs that have ended."""

AT_ONCE = 64
"""Endings that one process works on at a time."""

AGAIN = 5.0
"""Seconds after which an ending is tried again whose files or database failed."""

PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Seconds before each further try, as Standard Webhooks advises; after the last there is none."""

LONGEST_PAUSE = 86400.0
"""Seconds that a receiver may ask to wait with `Retry-After`."""


class Endings:
    """Works on the endings of all jobs; `results` returns the records of a job."""

    def __init__(
        self,
        store: JobStore,
        results: Callable[[Job], AsyncGenerator[bytes, None]],
        storage: Storage,
        sender: WebhookSender,
    ) -> None:
        self._store = store
        self._results = results
        self._storage = storage
        self.sender = sender

    async def run(self) -> None:
        """Work until this is cancelled."""
        working = set[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                for ending in await self._claimed(AT_ONCE - len(working)):
                    task = group.create_task(self._end(ending))
                    working.add(task)
                    task.add_done_callback(working.discard)
                if working:
                    await asyncio.wait(working, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(LOOK)

    async def _claimed(self, most: int) -> list[Ending]:
        try:
            return await self._store.claim_endings(most)
        except (DatabaseFailed, OSError) as error:
            log.warning("the database of jobs does not answer: %s", error)
        except Exception as error:  # a fault of ours must not end the work on all endings
            log.error("a look at the endings of jobs failed", exc_info=error)
        return []

    async def _end(self, ending: Ending) -> None:
        """Try an ending once and record the result; a fault of ours does not stop the others.

        An ending whose result the database does not take is claimed again after HOLD seconds.
        """
        holding = asyncio.create_task(self._hold(ending))
        try:
            job = await self._store.find(ending.job)
            if job is not None:  # a sweep removes the endings of jobs that are gone
                await (self._write if ending.kind == DESTINATION else self._send)(ending, job)
        except (DatabaseFailed, OSError) as error:
            log.warning("the %s of job %s waits: %s", ending.kind, ending.job, error)
            with suppress(DatabaseFailed, OSError):
                reason = "the server's files or database failed"
                await self._store.postpone(ending, AGAIN, reason, counts=False)
        except Exception as error:
            log.error("the %s of job %s failed", ending.kind, ending.job, exc_info=error)
            with suppress(DatabaseFailed, OSError):
                await self._again(ending, "a fault of the server; its log has the cause", None)
        finally:
            holding.cancel()

    async def _hold(self, ending: Ending) -> None:
        """Keep other processes from an ending that takes long."""
        while True:
            await asyncio.sleep(HOLD / 4)
            with suppress(DatabaseFailed, OSError):
                await self._store.postpone(ending, HOLD, "in work")

    async def _write(self, ending: Ending, job: Job) -> None:
        """Write the results as one file; a repeated write gives the same bytes."""
        finish = self._store.finish
        if job.state is State.EXPIRED:
            await finish(ending, FAILED, "the results expired before they were written")
            return
        try:
            folder = self._storage.writable(ending.target)
            await self._storage.check_folder(folder.below(IMAGES))
            target = folder.below(RESULTS)
            async with aclosing(self._results(job)) as results:
                await self._storage.write(target, results)
        except DatabaseFailed:
            raise
        except ServiceError as error:
            # A webhook waits for this, and must not wait for days: neither where another try cannot
            # help, nor where it is to tell that the job failed for want of room.
            full = job.state is State.FAILED and isinstance(error, StorageFull)
            if full or isinstance(error, InvalidParameter):
                await finish(ending, FAILED, error.detail)
            else:
                await self._again(ending, error.detail, None)
        else:
            await finish(ending, DONE, f"{job.done} records are in {target}")

    async def _send(self, ending: Ending, job: Job) -> None:
        tried = await self.sender.send(ending.target, f"msg_{job.id}", message(job), job.client)
        if tried.state == TO_DO:
            await self._again(ending, tried.reason, tried.pause)
        else:
            await self._store.finish(ending, tried.state, tried.reason)

    async def _again(self, ending: Ending, reason: str, pause: float | None) -> None:
        """Try again later, with a tenth of jitter, or give up."""
        if ending.attempts >= len(PAUSES):
            log.warning("gave up the %s of job %s: %s", ending.kind, ending.job, reason)
            await self._store.finish(ending, FAILED, reason)
            return
        usual = PAUSES[ending.attempts] * (1 + random.random() / 10)  # noqa: S311 (jitter)
        asked = min(pause or 0.0, LONGEST_PAUSE)
        await self._store.postpone(ending, max(usual, asked), reason)


def message(job: Job) -> str:
    """Return the JSON of a webhook, which is the same at every try: its type, the time at which the
    job ended, and counts.
    """
    ended = datetime.fromtimestamp(round(job.finished or job.created, 3), UTC)
    state = job.state
    if state is State.EXPIRED:  # since it ended
        whole = State.SUCCEEDED if job.done == job.total else State.CANCELLED
        state = State.FAILED if job.problem is not None else whole
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
