"""The work of a job on each image: its content, permission, further tries, output and record."""

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.admission import Admission
from app.archives.reading import Archive, Member, open_archive
from app.http.problems import problem
from app.intake.item import Item, Url
from app.intake.json_items import from_data_uri
from app.intake.spool import Blob, Spool
from app.intake.wanted import Wanted
from app.jobs.files import ARCHIVE
from app.jobs.manifest import StoredLine
from app.jobs.results import IMAGES
from app.jobs.store import Job
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.encoded_files import EncodedFile
from app.pipeline.results.outcomes import Answer, Processed
from app.responses.records import NO_VECTORS, InlineImages, VectorStyle, line, record
from app.storage.storage import Storage
from models.api.schemas import Record
from models.domain.deadline import Deadline
from models.domain.errors import (
    BadArchive,
    DeadlineExceeded,
    MalformedRequest,
    OriginBusy,
    Quarantined,
    ServiceError,
    StorageFull,
    TooLarge,
    Unavailable,
    WeightsMissing,
)
from models.labels import LabelSet
from models.settings import Settings

BEHIND = 10
"""Times as long that an image may take on threads of low priority. Linux gives each such thread a
third of what each other thread on its core gets (`models/thread_priority.py`); where requests
decode and compute on all cores, and the job too, that is an eighth of the core."""

OUTPUT_PIECE = 1 << 20
"""Bytes of an image that are in memory, beside those that the pipeline holds."""

TRIES = 6
"""Times that an image is tried whose failure may pass, beside the tries of each fetch: a worker
that died has a successor within 12 seconds."""

FIRST_PAUSE, LONGEST_ASKED = 1.0, 60.0
"""Seconds before the second try, doubled for each further one; seconds that an origin may ask to
wait with `Retry-After`."""


class Inputs:
    """The content of the items of one job; the archive is opened for the first of its members."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._archive: Archive | None = None
        self._opening = threading.Lock()

    async def content(self, line: StoredLine) -> Blob | Url | ServiceError:
        """Return the content of an item, or its error.

        Raises OSError if the disk fails, or has the archive no more.
        """
        if line.url is not None:
            return Url(line.url)
        async with Spool(self._most) as spool:
            try:
                await spool.write(await asyncio.to_thread(self._read, line))
            except (BadArchive, MalformedRequest, TooLarge) as error:
                return error.with_traceback(None)
            return await spool.finish()

    async def __aenter__(self) -> "Inputs":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the archive, once no thread reads it any more."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            if self._archive is not None:
                self._archive.close()
                self._archive = None

    def _read(self, line: StoredLine) -> bytes:
        if line.member is None:
            return from_data_uri(line.data or "")
        with self._opening:
            archive = self._archive = self._archive or open_archive(self._folder / ARCHIVE)
        index, size, place = line.member
        return archive.read(Member(index, line.path or "", size, place), self._most)


@dataclass(frozen=True, slots=True)
class Work:
    """What is wanted of every image of a job, and how its record is written."""

    wanted: Wanted
    labels: LabelSet | None = None
    vectors: VectorStyle = NO_VECTORS


WorkOf = Callable[[str, Mapping[str, Any]], Work]
"""Map an operation and its options to the work on each image; raises ServiceError."""


class ImageWorker:
    """Does the work of jobs on one image after the other.

    The images are in the background: they have places of their own in the line, go into the last
    lane of the batcher, and are never refused because other work keeps the server busy. Each has
    BEHIND times `max_deadline`, because it must not fail while requests take the time.

    With a destination, images are written to `images/NAME.SUFFIX` below it. The names are in the
    manifest, so an image that is made again, because the process was killed before its record was
    kept, replaces itself.
    """

    def __init__(
        self, pipeline: Pipeline, admission: Admission, storage: Storage, settings: Settings
    ) -> None:
        self._pipeline = pipeline
        self._admission = admission
        self._storage = storage
        self._settings = settings

    def inputs(self, folder: Path) -> Inputs:
        """Return what reads the items of the job in a folder."""
        return Inputs(folder, self._settings.max_image_bytes)

    async def record(
        self, job: Job, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        """Return the record of an item as a line, and whether the item failed."""
        answer = await self._persistently(job.client, work, index, given, inputs)
        inline = InlineImages() if job.destination is None else None
        made = record(answer, work.labels, name=given.name, inline=inline, vectors=work.vectors)
        if inline is not None:
            return b"".join(inline.pieces(line(made))), made.status != "ok"
        made = await self._written(job.destination or "", answer, made)
        return line(made), made.status != "ok"

    async def check(self, target: str | None) -> None:
        """Raise InvalidParameter if a file is where a destination must have a folder.

        Without this, every chunk of such a job would be computed in vain. Raises AddressRefused and
        OriginFailed too.
        """
        if target is not None:
            await self._storage.check_folder(self._storage.writable(target).below(IMAGES))

    async def _written(self, target: str, answer: Answer, made: Record) -> Record:
        """Write the images of an answer under the names in its record, below `images/`.

        An item whose image cannot be written becomes an error. Raises StorageFull where the disk is
        full, because no other image of the job could be written either.
        """
        try:
            folder = self._storage.writable(target)
            every = (made.image, *(each.image for each in made.versions or ()))
            shown = [each for each in every if each is not None]
            for image, (_, file) in zip(shown, answer.images, strict=True):
                image.name = f"{IMAGES}/{image.name}"
                await self._storage.write(folder.below(image.name), _content(file.file))
        except StorageFull:
            raise
        except ServiceError as error:
            return _failed(made.index, made.id, made.source, error)
        return made

    async def _persistently(
        self, client: str, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> Answer:
        """Try an image again whose failure may pass; pauses double, and differ by chance."""
        for attempt in itertools.count():
            answer = await self._answer(client, work, index, given, inputs)
            outcome = answer.outcome
            errors = outcome.errors if isinstance(outcome, Processed) else [outcome]
            passing = [each for each in errors if _may_pass(each)]
            if not passing or attempt + 1 == TRIES:
                return answer
            pause = FIRST_PAUSE * 2**attempt * (0.5 + random.random() / 2)  # noqa: S311 (jitter)
            asked = max(e.retry_after or 0.0 for e in passing if isinstance(e, ServiceError))
            await asyncio.sleep(max(min(asked, LONGEST_ASKED), pause))
        raise AssertionError("unreachable: the last try returns")

    async def _answer(
        self, client: str, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> Answer:
        seconds = BEHIND * self._settings.max_deadline
        deadline = Deadline.after(seconds, self._admission.clock())
        with self._admission.enter(client, deadline, background=True) as permit:
            content = await inputs.content(given)
            item = Item(index, content, given.url or given.path, given.id)
            return await self._pipeline.answer(item, work.wanted, permit)


def refused(index: int, given: StoredLine) -> bytes:
    """Return the record of an item of a chunk that ended processes, as a line."""
    text = "processes of the server ended while they worked on this image and its neighbours"
    return line(_failed(index, given.id, given.url or given.path, Quarantined(text)))


def _failed(index: int, id_: str | None, source: str | None, error: ServiceError) -> Record:
    shown = problem(error, None, index)
    return Record(index=index, id=id_, source=source, status="error", error=shown)


def _may_pass(error: object) -> bool:
    """Return whether an image failed for a reason that passes: the server or the origin is busy."""
    passing = isinstance(error, OriginBusy | Unavailable | DeadlineExceeded)
    return passing and not isinstance(error, WeightsMissing)


def _content(file: EncodedFile) -> bytes | AsyncIterator[bytes]:
    return file.read() if file.size <= OUTPUT_PIECE else _pieces(file)


async def _pieces(file: EncodedFile) -> AsyncIterator[bytes]:
    for start in range(0, file.size, OUTPUT_PIECE):
        yield file.read(start, OUTPUT_PIECE)
