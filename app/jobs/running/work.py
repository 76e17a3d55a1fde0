"""What a job wants of each image, and the record of an image."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.http.problems import problem
from app.intake.item import Item
from app.intake.wanted import Wanted
from app.jobs.inputs import Inputs
from app.jobs.manifest import StoredLine
from app.jobs.output import ImageOutput
from app.jobs.running.patience import Patience
from app.jobs.running.permission import Permission
from app.jobs.store.values import Job
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.outcomes import Answer, Processed
from app.responses.inline_images import InlineImages
from app.responses.records import line, record
from app.responses.vectors import NO_VECTORS, VectorStyle
from app.storage.location import is_stored
from app.urls.url_policy import host_of, parse_url
from models.api.schemas import Record
from models.domain.errors import (
    DeadlineExceeded,
    OriginBusy,
    Quarantined,
    ServiceError,
    Unavailable,
    WeightsMissing,
)
from models.labels import LabelSet

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
