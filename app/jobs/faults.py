"""Decide what a fault means for a job: it fails with a reason, or rests and is tried again."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from app.http.problems import problem
from app.jobs.files import FolderMissing
from app.jobs.store.jobs import JobRows
from app.jobs.store.values import Job
from app.storage.local_files import FULL
from models.domain.errors import (
    AddressRefused,
    Draining,
    InternalError,
    InvalidParameter,
    NotFound,
    ServiceError,
)

log = logging.getLogger("darkroom.jobs")

PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds for which a job rests after its first fault, doubled for each further one; at most."""

MOST_WAITED = 4
"""Faults in a row that count while a job waits for the database or for room: it never fails, and
rests for at most 40 seconds, so that it goes on soon after."""

MOST = 24
"""Faults in a row without progress after which a job fails: some 90 minutes."""

MOST_JOBS = 4096
"""Jobs whose faults are remembered; the one that rests for the longest time is forgotten first."""

LASTING = (InvalidParameter, AddressRefused, NotFound, InternalError)
"""Errors that another try cannot mend: other networks than before, a destination that is a file or
is not allowed any more, files that are missing or damaged."""

EXPECTED = (ServiceError, SQLAlchemyError, OSError)
"""Errors of surroundings; any other one is a fault of the server, and logged with its place."""


@dataclass(slots=True)
class _Resting:
    """Faults in a row since a job had `done` records, and when it is tried again."""

    done: int
    faults: int
    until: float


class Faults:
    """The jobs of one process that rest after a fault; `clock` returns seconds."""

    def __init__(
        self, jobs: JobRows, retention: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._retention = retention
        self._clock = clock
        self._known: dict[str, _Resting] = {}

    def resting(self, job: str) -> bool:
        """Return whether a job rests."""
        known = self._known.get(job)
        return known is not None and self._clock() < known.until

    def ended(self, job: str) -> None:
        """Forget the faults of a job whose work ended without one."""
        self._known.pop(job, None)

    async def take(self, job: Job, error: Exception) -> None:
        """Let a job fail or rest, and show clients why.

        `job` is as it was before the work that ended with `error`.
        """
        causes = [*_causes(error)]
        reason = self._reason(job, causes)
        ours = any(not isinstance(each, EXPECTED) for each in causes)
        level, cause = (logging.ERROR, error) if ours else (logging.WARNING, None)
        what = "rests" if reason is None else "fails"
        log.log(level, "job %s %s: %s", job.id, what, causes[0], exc_info=cause)
        shown = problem(reason or _public(causes[0])).model_dump(exclude_none=True)
        try:
            if reason is None:
                await self._jobs.note(job.id, shown)
                return
            await self._jobs.fail(job.id, shown, self._retention)
            self.ended(job.id)
        except (SQLAlchemyError, OSError):  # the next try finds the same reason
            known = self._known.get(job.id)
            self._rest(job, 1 if known is None else known.faults)

    def _reason(self, job: Job, causes: Sequence[BaseException]) -> ServiceError | None:
        """Return why a job fails; None if it rests now.

        It waits without end for a database that does not answer, for room on the disk of the data
        folder, and for a data folder that is not mounted. For room at its destination it waits as
        for the end of any other fault: room may never come.
        """
        lasting = next((each for each in causes if isinstance(each, LASTING)), None)
        if lasting is not None:
            return lasting
        known = self._known.get(job.id)
        faults = known.faults + 1 if known is not None and known.done == job.done else 1
        if any(_is_waited_for(each) for each in causes):
            faults = min(faults, MOST_WAITED)
        elif faults >= MOST:
            return _public(causes[0])
        self._rest(job, faults)
        return None

    def _rest(self, job: Job, faults: int) -> None:
        pause = min(LONGEST_PAUSE, PAUSE * 2.0 ** (faults - 1))
        self.ended(job.id)  # so that it becomes the last one
        self._known[job.id] = _Resting(job.done, faults, self._clock() + pause)
        if len(self._known) > MOST_JOBS:
            del self._known[next(iter(self._known))]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or those in a group of errors: one image that fails ends its task group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error


def _is_waited_for(error: BaseException) -> bool:
    full = isinstance(error, OSError) and error.errno in FULL
    return full or isinstance(error, SQLAlchemyError | ConnectionError | FolderMissing | Draining)


def _public(error: BaseException) -> ServiceError:
    """Return an error that a client may read."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, OSError):
        return InternalError(
            f"the files of the job cannot be used: {error.strerror or 'the file system failed'}"
        )
    return InternalError("a fault of the server; its log has the cause")
