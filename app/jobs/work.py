"""The work of a job on each image: its content, permission, further tries, output and record."""

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.admission import Admission, Permit
from app.archives.reading import Archive, Member, open_archive
from app.http.problems import problem
from app.intake.item import Item, Url
from app.intake.json_items import from_data_uri
from app.intake.spool import Blob, Spool
from app.intake.wanted import Wanted
from app.jobs.files import ARCHIVE, MANIFEST
from app.jobs.manifest import StoredLine, data_at
from app.jobs.store.tables import Job
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.encoded_files import EncodedFile
from app.pipeline.results.outcomes import Answer, Processed
from app.responses.records import NO_VECTORS, InlineImages, VectorStyle, line, record
from app.storage.storage import Storage
from app.urls import host_of, is_stored, parse_url
from models.api.schemas import FilteredImage, Record
from models.domain.deadline import Deadline
from models.domain.errors import (
    AddressRefused,
    BadArchive,
    DeadlineExceeded,
    InternalError,
    MalformedRequest,
    NotFound,
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
"""Times as long that an image may take on threads of low priority. Linux gives one of them a third
of what each other thread on its core gets (`models/thread_priority.py`); where requests decode and
compute on all cores, and the job too, that is an eighth of the core."""


class Permission:
    """Gives permits to images of jobs; every image asks here before anything is read of it.

    They are in the background: they have places of their own in the line, go into the last lane of
    the batcher, and are never refused because others are busy. Jobs take turns with each other in
    the runner.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    @asynccontextmanager
    async def image(self, seconds: float, client: str) -> AsyncIterator[Permit]:
        """Hold a permit for one image of a client, which has BEHIND times `seconds`.

        An image must not fail because requests take the time.
        """
        deadline = Deadline.after(BEHIND * seconds, self._admission.clock())
        with self._admission.enter(client, deadline, background=True) as permit:
            yield permit


# The content of an item: a URL, a data URI, or a member of the uploaded archive.
class Inputs:
    """Reads the items of one job; the archive is opened for the first of its members.

    `large` lets one large line of a manifest into memory at a time, of all jobs of a process.
    """

    def __init__(self, folder: Path, settings: Settings, large: asyncio.Semaphore) -> None:
        self._folder = folder
        self._settings = settings
        self._large = large
        self._archive: Archive | None = None
        self._opening = threading.Lock()

    async def content(self, line: StoredLine) -> Blob | Url | ServiceError:
        """Return the content of an item, or its error.

        Raises NotFound if the archive is missing, InternalError if it may not be read, and OSError
        if the disk fails.
        """
        if line.url is not None:
            return Url(line.url)
        if line.at is not None:
            async with self._large:
                return await self._spooled(line)
        return await self._spooled(line)

    async def _spooled(self, line: StoredLine) -> Blob | ServiceError:
        settings = self._settings
        async with Spool(settings.max_image_bytes) as spool:
            try:
                found = await asyncio.to_thread(self._read, line)
                await spool.write(found)
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
        most = self._settings.max_image_bytes
        if line.at is not None:
            return from_data_uri(data_at(self._folder / MANIFEST, line.at))
        if line.member is None:
            return from_data_uri(line.data or "")
        with self._opening:
            if self._archive is None:
                self._archive = self._opened()
            archive = self._archive
        index, size, place = line.member
        return archive.read(Member(index, line.path or "", size, place), most)

    def _opened(self) -> Archive:
        try:
            return open_archive(self._folder / ARCHIVE)
        except FileNotFoundError:
            if not (self._folder / MANIFEST).exists():  # the disk may be gone, with all jobs
                raise
            text = "the archive of the job is not in the data folder any more"
            raise NotFound(text) from None
        except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
            text = f"the archive of the job cannot be read: {error.strerror}"
            raise InternalError(text) from None


# Write the images of a job into a folder or bucket of its own, as `images/NAME.SUFFIX`. The names
# are in the manifest, so an image that is made again, because the process was killed before its
# record was kept, replaces itself.
IMAGES, RESULTS = "images", "results.jsonl"
"""The folder of images and the file of records below a destination."""

OUTPUT_PIECE = 1 << 20
"""Bytes of an image that are in memory, beside those that the pipeline holds."""


class ImageOutput:
    """Writer of the images of jobs that have a destination."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def write(self, target: str, answer: Answer, made: Record) -> Record:
        """Write the images of an answer under the names in its record, below `images/`.

        An item whose image cannot be written becomes an error. Raises StorageFull where the disk is
        full, because no other image of the job could be written either.
        """
        try:
            folder = self._storage.writable(target)
            files = [file for _, file in answer.images]
            for shown, file in zip(_shown(made), files, strict=True):
                shown.name = f"{IMAGES}/{shown.name}"
                await self._storage.write(folder.below(shown.name), _content(file.file))
        except StorageFull:
            raise
        except ServiceError as error:
            found = problem(error, None, made.index)
            return Record(
                index=made.index, id=made.id, source=made.source, status="error", error=found
            )
        return made

    async def check(self, target: str) -> None:
        """Raise InvalidParameter if a file is where the images or the results must have a folder.

        Without it, every chunk of such a job would be computed in vain. Raises AddressRefused and
        OriginFailed too.
        """
        await self._storage.check_folder(self._storage.writable(target).below(IMAGES))

    async def settle(self, target: str) -> None:
        """Let the images that were written survive a power failure.

        Raises OriginFailed and StorageFull. Call it before their records count. Where none was
        written, there is nothing to do.
        """
        with suppress(AddressRefused, NotFound):
            await self._storage.settle(self._storage.writable(target).below(IMAGES))


def _shown(made: Record) -> list[FilteredImage]:
    """Return the images of a record, in the order of its answer."""
    every = (made.image, *(each.image for each in made.versions or ()))
    return [each for each in every if each is not None]


def _content(file: EncodedFile) -> bytes | AsyncIterator[bytes]:
    return file.read() if file.size <= OUTPUT_PIECE else _pieces(file)


async def _pieces(file: EncodedFile) -> AsyncIterator[bytes]:
    for start in range(0, file.size, OUTPUT_PIECE):
        yield file.read(start, OUTPUT_PIECE)


# Further tries of an image whose failure may pass: the server was busy, or the origin of its URL.
ATTEMPTS, FETCH_ATTEMPTS = 8, 5
"""Times that an image is tried whose error says that the server could not take it; times of one
whose origin is busy or cannot be reached, beside the tries of each fetch."""

LOST = 3
"""Images in a row that were given up, after which an origin has one try for each further image: a
host that is gone would else keep a job of 100,000 of its images busy for days."""

MOST_HOSTS = 4096
"""Origins that are remembered; all are forgotten then."""

FIRST_OF_ORIGIN = 1.0
"""Seconds before the second try of an image whose origin is busy, doubled for each further one."""

LONGEST_ASKED = 60.0
"""Seconds that an origin may ask to wait with `Retry-After`."""

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
        self, pipeline: Pipeline, permission: Permission, output: ImageOutput, seconds: float
    ) -> None:
        self._output = output
        self._pipeline = pipeline
        self._permission = permission
        self._seconds = seconds
        self._lost = Counter[str]()
        """Images in a row that were given up, by the host of their URLs."""

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
        """Try an image again whose failure may pass; pauses double, and differ by chance."""
        host = _host(given.url)
        for attempt in itertools.count(1):
            answer = await self._answer(client, work, index, given, inputs)
            busy = next((e for e in _errors(answer) if isinstance(e, OriginBusy)), None)
            tries, first, asked = ATTEMPTS if _passing(answer) else 1, FIRST_PAUSE, 0.0
            if host and busy is not None:
                tries = 1 if self._lost.get(host, 0) >= LOST else FETCH_ATTEMPTS
                first, asked = FIRST_OF_ORIGIN, min(busy.retry_after, LONGEST_ASKED)
            if attempt >= tries:
                self._note(host, lost=busy is not None)
                return answer
            usual = min(LONGEST_PAUSE, first * 2 ** (attempt - 1))
            await asyncio.sleep(max(asked, usual * (0.5 + random.random() / 2)))  # noqa: S311 (jitter)
        raise AssertionError("unreachable: the last try returns")

    def _note(self, host: str | None, *, lost: bool) -> None:
        """Remember whether an origin has answered."""
        if host and lost:
            self._lost[host] += 1
            if len(self._lost) > MOST_HOSTS:
                self._lost.clear()
        elif host:
            self._lost.pop(host, None)

    async def _answer(
        self, client: str, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> Answer:
        async with self._permission.image(self._seconds, client) as permit:
            content = await inputs.content(given)
            item = Item(index, content, given.url or given.path, given.id)
            return await self._pipeline.answer(item, work.wanted, permit)


def refused(index: int, given: StoredLine) -> bytes:
    """Return the record of an item of a chunk that ended processes, as a line."""
    text = "processes of the server ended while they worked on this image and its neighbours"
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
