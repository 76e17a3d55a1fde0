"""Work through the jobs of the database, chunk by chunk, as all processes of the database do."""

import asyncio
import itertools
import logging
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.admission import Admission
from app.admission.semaphore import PART, FairSemaphore
from app.archives.reading import Archive, Member, open_archive
from app.http.problems import problem
from app.intake.item import Item, Url
from app.intake.json_items import from_data_uri
from app.intake.spool import Blob, keep
from app.intake.wanted import Wanted
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder, private, sync_path, to_its_end
from app.jobs.manifest import StoredLine, read
from app.jobs.results import IMAGES
from app.jobs.store import RUNNABLE, Chunk, DatabaseFailed, Job, JobStore, surviving
from app.pipeline.encoded_files import EncodedFile
from app.pipeline.outcomes import Answer, Processed, images_of
from app.pipeline.pipeline import Pipeline
from app.responses.records import NO_VECTORS, InlineImages, Record, VectorStyle, line, record
from app.storage.local_files import FULL
from app.storage.storage import Storage
from models.domain.deadline import Deadline
from models.domain.errors import (
    AddressRefused,
    BadArchive,
    DeadlineExceeded,
    Draining,
    InternalError,
    InvalidParameter,
    MalformedRequest,
    OriginBusy,
    Quarantined,
    ServiceError,
    StorageFull,
    TooLarge,
    Unavailable,
    WeightsMissing,
)
from models.domain.job import Lane
from models.labels import LabelSet
from models.settings import Settings

log = logging.getLogger("darkroom.jobs")

JOBS_AT_ONCE = 16
"""Jobs that one process works on at a time; their clients share its slots for images. Each holds
the items of a chunk in memory, at most 8 MiB."""

LOOK = 1.0
"""Seconds between two looks for new jobs and for cancelled ones, and before a database that does
not answer is asked again."""

ATTEMPTS = 12
"""Times that a chunk is begun. A process that is killed has worked in vain on its chunks; the
images of a chunk that ended with its process each time become errors, so that the job can end."""

IN_MEMORY = 1 << 20
"""Bytes of the records of one chunk that stay in memory; images in records are larger."""

PAUSE = 15.0
"""Seconds for which a job rests after a fault."""

PATIENCE = 5400.0
"""Seconds without progress after which a job fails that had nothing but faults."""

LASTING = (InvalidParameter, AddressRefused, InternalError)
"""Errors that another try cannot mend: other networks than before, a destination that is a file or
is not allowed any more, a manifest that is damaged."""

WAITED_FOR = (DatabaseFailed, ConnectionError, Draining)
"""Errors whose end a job waits for without end, as for room in the data folder."""

EXPECTED = (ServiceError, OSError)
"""Errors of surroundings; any other error is a fault of the server, and logged with its place."""

BEHIND = 10
"""Times as long that an image may take on threads of low priority. Linux gives each such thread a
third of what each other thread on its core gets (`models/threads.py`); where requests
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
    """The content of the items of a job; the archive is opened for the first of its members."""

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
        try:
            return await asyncio.to_thread(lambda: keep(self._read(line), self._most))
        except (BadArchive, MalformedRequest, TooLarge) as error:
            return error.with_traceback(None)

    def close(self) -> None:
        """Close the archive; a thread that opens it now drops it."""
        if self._archive is not None:
            self._archive.close()

    def _read(self, line: StoredLine) -> bytes:
        if line.member is None:
            return from_data_uri(line.data or "")
        with self._opening:
            archive = self._archive = self._archive or open_archive(self._folder / ARCHIVE)
        index, size, place = line.member
        return archive.read(Member(index, line.path or "", size, place), self._most)


@dataclass(frozen=True, slots=True)
class Work:
    """The wanted result of every image of a job, and the form of its record.

    `model` is the network with its weights, in the form of `models.api.schemas.ModelRecord`.
    """

    wanted: Wanted
    labels: LabelSet | None = None
    vectors: VectorStyle = NO_VECTORS
    model: Mapping[str, Any] | None = None


WorkOf = Callable[[str, Mapping[str, Any]], Work]
"""Map an operation and its options to the work on each image; raises ServiceError."""


@dataclass
class ImageWorker:
    """Does the work of jobs on images.

    The images are in the background: they have places of their own in the line, go into the last
    lane of the batcher, and are never refused because requests keep the server busy. Each has
    BEHIND times `max_deadline`, because it must not fail while requests take the time.

    With a destination, images are written to `images/NAME.SUFFIX` below it. The names are in the
    manifest, so an image that is made again, because the process was killed before its record was
    kept, replaces itself.
    """

    pipeline: Pipeline
    admission: Admission
    storage: Storage
    settings: Settings

    def inputs(self, folder: Path) -> Inputs:
        """Return the reader of the items of the job in a folder."""
        return Inputs(folder, self.settings.max_image_bytes)

    async def record(
        self, job: Job, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        """Return the record of an item as a line, and whether the item failed."""
        answer = await self._persistently(job.client, work, index, given, inputs)
        inline = InlineImages() if job.destination is None else None
        made = record(answer, work.labels, name=given.name, inline=inline, vectors=work.vectors)
        if inline is not None:
            return b"".join(inline.pieces(line(made))), made["status"] != "ok"
        made = await self._written(job.destination or "", answer, made)
        return line(made), made["status"] != "ok"

    async def check(self, target: str | None) -> None:
        """Raise InvalidParameter if a file is where a destination must have a folder.

        Without this, every chunk of such a job would be computed in vain. Raises AddressRefused and
        OriginFailed too.
        """
        if target is not None:
            await self.storage.check_folder(self.storage.writable(target).below(IMAGES))

    async def _written(self, target: str, answer: Answer, made: Record) -> Record:
        """Write the images of an answer under the names in its record, below `images/`.

        An item whose image cannot be written becomes an error. Raises StorageFull where the disk is
        full, because no further image of the job could be written either.
        """
        try:
            folder = self.storage.writable(target)
            every = (made, *made.get("versions", ()))
            shown = [each["image"] for each in every if "image" in each]
            for image, (_, file) in zip(shown, images_of(answer.outcome), strict=True):
                image["name"] = f"{IMAGES}/{image['name']}"
                await self.storage.write(folder.below(image["name"]), _content(file.file))
        except StorageFull:
            raise
        except ServiceError as error:
            return _failed(made["index"], made.get("id"), made.get("source"), error)
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
        seconds = BEHIND * self.settings.max_deadline
        deadline = Deadline(self.admission.clock() + seconds)
        with self.admission.enter(client, deadline, Lane.BACKGROUND) as permit:
            content = await inputs.content(given)
            item = Item(index, content, given.url or given.path, given.id)
            return await self.pipeline.answer(item, work.wanted, permit)


def refused(index: int, given: StoredLine) -> bytes:
    """Return the record of an item of a chunk that ended processes, as a line."""
    text = "processes of the server ended while they worked on this image and its neighbours"
    return line(_failed(index, given.id, given.url or given.path, Quarantined(text)))


def _failed(index: int, id_: str | None, source: str | None, error: ServiceError) -> Record:
    shown = problem(error, None, index)
    found = {"index": index, "id": id_, "source": source, "status": "error", "error": shown}
    return {name: value for name, value in found.items() if value is not None}


def _may_pass(error: object) -> bool:
    """Return whether an image failed for a reason that passes: the server or the origin is busy."""
    passing = isinstance(error, OriginBusy | Unavailable | DeadlineExceeded)
    return passing and not isinstance(error, WeightsMissing)


def _content(file: EncodedFile) -> bytes | AsyncIterator[bytes]:
    return file.read() if file.size <= OUTPUT_PIECE else _pieces(file)


async def _pieces(file: EncodedFile) -> AsyncIterator[bytes]:
    for start in range(0, file.size, OUTPUT_PIECE):
        yield file.read(start, OUTPUT_PIECE)


class ChunkRecords:
    """The records of a chunk in the order in which they are made."""

    def __init__(self, chunk: Chunk, folder: Path) -> None:
        self.chunk = chunk
        self.failed = self.size = 0
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder))  # noqa: SIM115 (`close`)
        self._writing = asyncio.Lock()

    def close(self) -> None:
        """Drop the records."""
        self._file.close()

    async def add(self, record: bytes, *, failed: bool) -> None:
        """Add the record of an item, which is a line."""
        async with self._writing:
            if self.size + len(record) > IN_MEMORY:
                await asyncio.to_thread(self._file.write, record)
            else:
                self._file.write(record)
            self.size += len(record)
            self.failed += failed

    def store(self, path: Path) -> Chunk:
        """Append the records to the results file of this process and sync them; blocks.

        Return the chunk with their place.
        """
        self._file.seek(0)
        with open(path, "ab", opener=private) as results:
            at = results.tell()
            shutil.copyfileobj(self._file, results, IN_MEMORY)
            results.flush()
            os.fsync(results.fileno())
        sync_path(path.parent)  # the file may be new
        return replace(self.chunk, file=path.name, at=at, length=self.size)


@dataclass(frozen=True, slots=True)
class JobInWork:
    """A job, the work on each of its images, its inputs and its own limit of images in work."""

    job: Job
    work: Work
    inputs: Inputs
    limit: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class Resting:
    """A job that had `done` records at a fault: when it had its first fault since then, and when it
    is tried again.
    """

    done: int
    since: float
    until: float


@dataclass
class Runner:
    """The work of a process on all jobs; at most `most` images are under way.

    `clock` returns seconds.
    """

    store: JobStore
    folder: DataFolder
    worker: ImageWorker
    work_of: WorkOf
    most: int
    stopping: Callable[[], bool]
    on_item: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # A client alone has `most` of them: PART times as many as stay free.
        self._slots = FairSemaphore(-(-self.most * (PART + 1) // PART))
        self._storing = asyncio.Lock()
        self._ended = False
        self._feeders: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()
        """Jobs of which further chunks are begun; another job gives way to them."""
        self._resting: dict[str, Resting] = {}
        self._awake = asyncio.Event()
        self.full_clients: Collection[str] = ()
        """Clients without room in the data folder: no chunk of their jobs is begun."""

    def wake(self) -> None:
        """Look for new and cancelled jobs now."""
        self._awake.set()

    async def run(self) -> None:
        """Work until this is cancelled."""
        try:
            while True:
                with surviving("a look at the jobs"):
                    await self.look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._awake.wait()
                self._awake.clear()
        finally:
            self._ended = True
            for task in self._feeders.values():
                task.cancel()
            await asyncio.gather(*self._feeders.values(), return_exceptions=True)

    async def idle(self) -> None:
        """Return when no chunk is in work; call it once nothing is claimed any more."""
        while self._feeders:
            await asyncio.wait(self._feeders.values())

    async def look(self) -> None:
        """Renew the lease, drop cancelled jobs, and begin with jobs that have free chunks."""
        if self._feeders:
            await self.store.renew([*self._feeders])
        states = await self.store.states([*self._feeders])
        for id_, task in self._feeders.items():
            if states.get(id_) not in RUNNABLE and not task.cancelling():
                task.cancel()
        if self.stopping():
            self._wanted = set()
            return
        now = self.clock()
        self._resting = {i: r for i, r in self._resting.items() if now < r.until + PATIENCE}
        resting = [id_ for id_, rest in self._resting.items() if now < rest.until]
        known = await self.store.runnable(JOBS_AT_ONCE, self.full_clients, resting)
        self._wanted = {job.id for job in known}
        for job in known:
            if job.id not in self._feeders and len(self._feeders) < JOBS_AT_ONCE:
                self._feeders[job.id] = asyncio.create_task(self._feed(job))

    async def _feed(self, job: Job) -> None:
        """Work on chunks of a job until none is free or further jobs wait; it may fail or rest.

        At the end the chunks that are claimed still are given back, also the chunk of a claim whose
        answer was lost. Where the database does not answer, their lease ends.
        """
        try:
            await self.worker.check(job.destination)
            work = self.work_of(job.operation, job.options)
            inputs = self.worker.inputs(self.folder.of(job.id))
            limit = asyncio.Semaphore(job.concurrency or self.most)
            if work.model is not None:
                await self.store.note(job.id, model=work.model)
            await self._work(JobInWork(job, work, inputs, limit))
        except Exception as error:  # other jobs are protected from a fault of ours
            if not self.stopping():
                await self._take_fault(job, error)
        else:
            self._resting.pop(job.id, None)
        finally:
            try:
                with suppress(DatabaseFailed, OSError):
                    await self.store.release([job.id])
            finally:
                del self._feeders[job.id]
                self.wake()

    async def _work(self, this: JobInWork) -> None:
        """Claim chunks in turn: the next when all images of the chunk before began."""
        with closing(this.inputs):
            async with asyncio.TaskGroup() as group:
                while this.job.id in self._wanted and not self.stopping():
                    chunk = await self.store.claim(this.job.id)
                    if chunk is None:
                        return
                    begun = asyncio.Event()
                    group.create_task(self._chunk(this, chunk, begun))
                    await begun.wait()

    async def _chunk(self, this: JobInWork, chunk: Chunk, begun: asyncio.Event) -> None:
        """Work on the items of a chunk; `begun` is set when the last item is under way."""
        folder = self.folder.of(this.job.id)
        records = ChunkRecords(chunk, folder)
        try:
            found = await asyncio.to_thread(read, folder / MANIFEST, chunk.span)
            if chunk.attempts > ATTEMPTS:
                log.error("chunk %s of job %s ended its processes", chunk.number, chunk.job)
            async with asyncio.TaskGroup() as group:
                for index, line in enumerate(found, chunk.first):
                    if chunk.attempts > ATTEMPTS:
                        await records.add(refused(index, line), failed=True)
                        self.on_item("failed")
                        continue
                    await this.limit.acquire()
                    await self._slots.take(this.job.client)

                    def ended(_: object) -> None:
                        self._slots.give_back(this.job.client)
                        this.limit.release()

                    task = group.create_task(self._item(this, index, line, records))
                    task.add_done_callback(ended)
                begun.set()
            await to_its_end(self._commit(records))
        finally:
            begun.set()
            records.close()

    async def _item(
        self, this: JobInWork, index: int, line: StoredLine, records: ChunkRecords
    ) -> None:
        made, failed = await self.worker.record(this.job, this.work, index, line, this.inputs)
        await records.add(made, failed=failed)
        self.on_item("failed" if failed else "ok")

    async def _commit(self, records: ChunkRecords) -> None:
        """Sync the records of a chunk to a file, then let the database count them.

        A chunk that another process has taken over does not count. Waits for a database that does
        not answer; raises OSError where the disk does not take the records.
        """
        path = self.folder.of(records.chunk.job) / f"results-{self.store.owner}.jsonl"
        async with self._storing:
            chunk = await asyncio.to_thread(records.store, path)
        while True:
            try:
                await self.store.commit(chunk, records.failed)
            except (DatabaseFailed, OSError) as error:
                if self._ended:  # another process does the chunk again
                    raise
                log.warning("the database of jobs does not answer; trying again: %s", error)
            else:
                return
            await asyncio.sleep(LOOK)

    async def _take_fault(self, job: Job, error: Exception) -> None:
        """Let a job fail or rest, and show clients why.

        A job waits without end for a database that does not answer and for room on the disk of the
        data folder. For room at its destination it waits as for the end of any further fault: room
        may never come. `job` is as it was before the work that ended with `error`.
        """
        causes = [*_causes(error)]
        reason = next((each for each in causes if isinstance(each, LASTING)), causes[0])
        now, known = self.clock(), self._resting.get(job.id)
        is_new = known is None or known.done != job.done or any(map(_is_waited_for, causes))
        since = now if known is None or is_new else known.since
        fails = isinstance(reason, LASTING) or now - since >= PATIENCE
        ours = any(not isinstance(each, EXPECTED) for each in causes)
        level, cause = (logging.ERROR, error) if ours else (logging.WARNING, None)
        what = "fails" if fails else "rests"
        log.log(level, "job %s %s: %s", job.id, what, causes[0], exc_info=cause)
        self._resting[job.id] = Resting(job.done, since, now + PAUSE)
        shown = problem(_public(reason))
        with suppress(DatabaseFailed, OSError):  # the next try finds the same reason
            if fails:
                await self.store.fail(job.id, shown)
                self._resting.pop(job.id, None)
            else:
                await self.store.note(job.id, problem=shown)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or the errors of a group: an image that fails ends its task group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error


def _is_waited_for(error: BaseException) -> bool:
    full = isinstance(error, OSError) and error.errno in FULL
    return full or isinstance(error, WAITED_FOR)


def _public(error: BaseException) -> ServiceError:
    """Return an error that a client may read."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, OSError):
        return InternalError(
            f"the files of the job cannot be used: {error.strerror or 'the file system failed'}"
        )
    return InternalError("a fault of the server; its log has the cause")
