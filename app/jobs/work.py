"""What a job wants of each image, and the record of an image."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.admission import Admission, Permit
from app.http.problems import problem
from app.intake.item import Item
from app.intake.wanted import Wanted
from app.jobs.inputs import Inputs
from app.jobs.manifest import StoredLine
from app.jobs.output import ImageOutput
from app.jobs.store.values import Job
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.outcomes import Answer, Processed
from app.responses.records import NO_VECTORS, InlineImages, VectorStyle, line, record
from app.urls import host_of, is_stored, parse_url
from models.api.schemas import Record
from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    OriginBusy,
    Overloaded,
    Quarantined,
    ServiceError,
    Unavailable,
    WeightsMissing,
)
from models.labels import LabelSet

# Ask for permission to work on one image of a job, after the requests of interactive clients.
JOBS = "the jobs of all clients"
"""The client that images of jobs count for."""

BEHIND = 10
"""Times as long that an image may take on threads of low priority. Linux gives one of them a third
of what each other thread on its core gets (`models/thread_priority.py`); where requests decode and
compute on all cores, and the job too, that is an eighth of the core."""

LONGEST_WAIT = 5.0
"""Seconds after which a refused image asks again at the latest."""


class Permission:
    """Gives permits to images of jobs; every image asks here before anything is read of it.

    All of them count as one client in the background, so while anybody else wants something they
    hold only the places that are theirs, and go into the bulk lane of the batcher. An image that
    admission refuses waits, and asks again: jobs are never refused because others are busy. Jobs
    take turns with each other in the runner.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        admission.background = admission.counters.key(f"client {JOBS}")

    @asynccontextmanager
    async def image(self, seconds: float, client: str) -> AsyncIterator[Permit]:
        """Hold a permit for one image, which has `seconds` once it is given; raises Draining.

        Its URL is fetched at the cost of `client`, so that the jobs of others find their share.

        Where threads of low priority work on it, it has BEHIND times as many: it must not fail
        because requests take the time.
        """
        while True:
            try:
                permit = self._permit(seconds)
                break
            except Overloaded as error:
                await asyncio.sleep(min(error.retry_after, LONGEST_WAIT))
        with permit:
            permit.fetches_for = client
            yield permit

    def _permit(self, seconds: float) -> Permit:
        admission = self._admission
        behind = BEHIND if admission.line.behind is not None else 1
        deadline = Deadline.after(behind * seconds, admission.clock())
        # A rate limit is about requests; how many images jobs have under way is limited already.
        permit = admission.enter(JOBS, deadline, rated=True)
        try:
            permit.grow(1, 0)
        except BaseException:
            permit.release()
            raise
        return permit


# How long images of a job wait for an origin that is busy or cannot be reached. An origin is
# given time once, not once for each of its images: a host that is gone would else keep a job of
# 100,000 of its images busy for days.
FETCH_RETRIES = 4
"""Further tries of an image whose origin is busy or cannot be reached, beside those of a fetch."""

FIRST, LONGEST = 1.0, 60.0
"""Seconds before the second try of an image, doubled for each further one; and at most."""

LOST = 3
"""Images in a row that were given up, after which an origin has one try for each further image."""

MOST_HOSTS = 4096
"""Origins that are remembered; the one that failed first is forgotten first."""


@dataclass(slots=True)
class _Origin:
    """Images in a row that were given up, and the time before which the origin wants no request."""

    lost: int = 0
    until: float = 0.0


class Patience:
    """Pauses before further tries; `clock` returns seconds, `chance` a number from 0 to 1."""

    def __init__(
        self, retries: int, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._chance = chance
        self._origins: dict[str, _Origin] = {}

    def ahead(self, host: str) -> float:
        """Return the seconds to wait before an image is asked of a host, mostly 0."""
        known = self._origins.get(host)
        return 0.0 if known is None else min(LONGEST, max(0.0, known.until - self._clock()))

    def pause(self, host: str, tries: int, asked: float | None) -> float | None:
        """Return the seconds before the next try after `tries` that failed; None: give up.

        `asked` are the seconds of the origin's own `Retry-After`, which hold for all its images.
        """
        known = self._origins.setdefault(host, _Origin())
        if len(self._origins) > MOST_HOSTS:
            del self._origins[next(iter(self._origins))]
        if tries > self._retries or known.lost >= LOST:
            known.lost += 1
            return None
        if asked:
            known.until = max(known.until, self._clock() + min(asked, LONGEST))
        usual = min(LONGEST, FIRST * 2.0 ** (tries - 1)) * (0.5 + self._chance() / 2)
        return max(usual, self.ahead(host))

    def answered(self, host: str) -> None:
        """Forget the failures of a host that has answered."""
        self._origins.pop(host, None)


ATTEMPTS = 8
"""Times that an image is tried whose error says that the server could not take it."""

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
"""Seconds before the second try of an image, doubled for each further one."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is wanted of every image of a job, and how its record is written."""

    wanted: Wanted
    labels: LabelSet | None = None
    vectors: VectorStyle = NO_VECTORS


WorkOf = Callable[[str, Mapping[str, Any]], Work]
"""Map an operation and its options to the work on each image; raises ServiceError."""


class ImageWorker:
    """Does the work on one image after the other; `seconds` is the time that each may take."""

    def __init__(
        self,
        pipeline: Pipeline,
        permission: Permission,
        output: ImageOutput,
        patience: Patience,
        seconds: float,
    ) -> None:
        self._output = output
        self._patience = patience
        self._pipeline = pipeline
        self._permission = permission
        self._seconds = seconds

    async def record(
        self, job: Job, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        """Return the record of an item as a line, and whether the item failed."""
        answer = await self._persistently(job.client, work, index, given, inputs)
        name = given.name or f"{index:04d}"
        if job.destination is not None:
            made = record(answer, work.labels, name=name, vectors=work.vectors)
            made = await self._output.write(job.destination, answer, made)
            return line(made), made.status != "ok"
        inline = InlineImages()
        made = record(answer, work.labels, name=name, inline=inline, vectors=work.vectors)
        return b"".join(inline.pieces(line(made))), made.status != "ok"

    async def check(self, job: Job) -> None:
        """Raise InvalidParameter if the destination of a job can take no images."""
        if job.destination is not None:
            await self._output.check(job.destination)

    async def settle(self, job: Job) -> None:
        """Let the images of finished items survive a power failure; raises OriginFailed."""
        if job.destination is not None:
            await self._output.settle(job.destination)

    async def _persistently(
        self, client: str, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> Answer:
        """Try an image again whose failure may pass: the server was busy, or its origin."""
        host = _host(given.url)
        for attempt in itertools.count(1):
            if host and (ahead := self._patience.ahead(host)):
                await asyncio.sleep(ahead)
            answer = await self._answer(client, work, index, given, inputs)
            busy = next((e for e in _errors(answer) if isinstance(e, OriginBusy)), None)
            if host and busy is None:
                self._patience.answered(host)
            pause: float | None = None
            if host and busy is not None:
                pause = self._patience.pause(host, attempt, busy.retry_after)
            elif attempt < ATTEMPTS and _passing(answer):
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
            if pause is None:
                return answer
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last try returns")

    async def _answer(
        self, client: str, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> Answer:
        async with self._permission.image(self._seconds, client) as permit:
            content = await inputs.content(given)
            item = Item(index, content, given.url or given.path, given.id)
            return await self._pipeline.answer(item, work.wanted, permit)


def refused(index: int, given: StoredLine) -> bytes:
    """Return the record of an item that ended processes, as a line."""
    text = "processes of the server ended while they worked on this image alone"
    error = problem(Quarantined(text), None, index)
    source = given.url or given.path
    return line(Record(index=index, id=given.id, source=source, status="error", error=error))


def _passing(answer: Answer) -> bool:
    """Return whether an image failed for a reason that passes: the server was busy or restarted."""
    return any(
        isinstance(each, Unavailable | DeadlineExceeded) and not isinstance(each, WeightsMissing)
        for each in _errors(answer)
    )


def _errors(answer: Answer) -> Sequence[object]:
    outcome = answer.outcome
    return outcome.errors if isinstance(outcome, Processed) else [outcome]


def _host(url: str | None) -> str | None:
    """Return the host of a URL of http or https, else None."""
    if url is None or is_stored(url):
        return None
    try:
        return host_of(parse_url(url))
    except ServiceError:
        return None
