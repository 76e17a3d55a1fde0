"""What a job wants of each image, and the record of an image."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.intake.request_items import Item, Url
from app.intake.spool import Blob
from app.intake.wanted import Wanted
from app.jobs.manifest import Line
from app.jobs.permission import Permission
from app.jobs.store.values import Job
from app.parsing.data_uri import DataUri
from app.pipeline.outcomes import Answer, Processed
from app.pipeline.pipeline import Pipeline
from app.responses.inline_images import InlineImages
from app.responses.records import line, record
from app.responses.vectors import NO_VECTORS, VectorStyle
from models.domain.errors import (
    DeadlineExceeded,
    MalformedRequest,
    ServiceError,
    TooLarge,
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
        self, pipeline: Pipeline, permission: Permission, seconds: float, most_bytes: int
    ) -> None:
        self._pipeline = pipeline
        self._permission = permission
        self._seconds = seconds
        self._most_bytes = most_bytes

    async def record(self, job: Job, work: Work, index: int, given: Line) -> tuple[bytes, bool]:
        """Return the record of an item as a line, and whether the item failed."""
        for attempt in itertools.count(1):
            answer = await self._answer(job, work, index, given)
            if attempt >= ATTEMPTS or not _passing(answer):
                break
            await asyncio.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1)))
        inline = InlineImages()
        made = record(answer, work.labels, inline=inline, vectors=work.vectors)
        return b"".join(inline.pieces(line(made))), made.status != "ok"

    async def _answer(self, job: Job, work: Work, index: int, given: Line) -> Answer:
        async with self._permission.image(job.client, self._seconds) as permit:
            content = await self._content(given)
            item = Item(index, content, given.url or given.path, given.id)
            return await self._pipeline.answer(item, work.wanted, permit)

    async def _content(self, given: Line) -> Blob | Url | ServiceError:
        if given.url is not None:
            return Url(given.url)
        return await asyncio.to_thread(_decoded, given.data or "", self._most_bytes)


def _decoded(data: str, most: int) -> Blob | ServiceError:
    """Return the bytes of a data URI, or its error."""
    try:
        return Blob.of(b"".join(_bounded(DataUri.of(data), most)))
    except (MalformedRequest, TooLarge) as error:
        return error.with_traceback(None)


def _bounded(uri: DataUri, most: int) -> Iterator[bytes]:
    size = 0
    for piece in uri.pieces():
        size += len(piece)
        if size > most:
            raise TooLarge(f"the image has more than {most} bytes (DARKROOM_MAX_IMAGE_BYTES)")
        yield piece


def _passing(answer: Answer) -> bool:
    """Return whether an image failed for a reason that passes: the server was busy or restarted."""
    outcome = answer.outcome
    errors = outcome.errors if isinstance(outcome, Processed) else [outcome]
    return any(
        isinstance(each, Unavailable | DeadlineExceeded) and not isinstance(each, WeightsMissing)
        for each in errors
    )
