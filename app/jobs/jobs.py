"""The jobs of a server: the calls of routes, and the start and end of the runner.

A job is made of a request: its items come from a body, from storage, or from items that failed
before. A body is written to disk piece by piece, then checked as a whole on a thread. The job is
queued once its files are on disk and its client has room for them.

Import this file only where a data folder is set: it imports SQLAlchemy.
"""

import asyncio
import hashlib
import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import aiofiles
import msgspec
from fastapi import Request
from multipart import MultipartSegment

from app.admission.counters import ByKey, Counters
from app.admission.semaphore import FairSemaphore
from app.archives.reading import ArchiveLimits, open_archive, unpacked
from app.http.negotiation import JSON, JSON_LINES
from app.http.request import departure_of
from app.intake.request_items import MEDIA_TYPES as ARCHIVES
from app.intake.request_items import filename_of, segments
from app.jobs.endings import Endings, WebhookSender
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder, private, sync_path, to_its_end
from app.jobs.manifest import LONGEST_ID, ManifestWriter, StoredLine, parsed, place_of
from app.jobs.results import OpenResults, outcomes, whole_lines
from app.jobs.runner import ImageWorker, Runner, WorkOf
from app.jobs.store import (
    DESTINATION,
    LARGEST_CHUNK,
    SMALLEST_CHUNK,
    UNFINISHED,
    WEBHOOK,
    Database,
    DatabaseFailed,
    Ending,
    Job,
    JobStore,
    State,
    surviving,
)
from app.storage.location import Location
from app.storage.storage import Storage
from app.urls import MAX_URL
from models.api.jobs import JobQuery
from models.domain.errors import (
    FieldError,
    IdempotencyMismatch,
    InvalidParameter,
    MalformedRequest,
    NotFound,
    ResultsExpired,
    ServiceError,
    StorageFull,
    TooLarge,
    TooManyFollowers,
    TooManyJobs,
    UnsupportedMedia,
)
from models.settings import Settings
from models.threads import giving_way, run_to_end

SWEEP = 10.0
"""Seconds between two removals of what has expired."""

SEARCH = 3600.0
"""Seconds between two searches for folders that are no job's, because a body broke off."""

MOST_FOLLOWERS = 16
"""Requests of one client, at all front ends, that follow results at a time."""

FORM = "multipart/form-data"

ARRIVING = 4
"""Bodies that one client may send to one process at a time. The server's own rules for slow bodies
hold for bodies of jobs too."""

BUFFER = 1 << 18
"""Bytes of a body that are collected before they are written."""

SENT, UNPACKED = "manifest.sent", "archive.unpacked"
"""The manifest as it was sent, and a compressed TAR as it is unpacked."""

PARTS = {"manifest": SENT, "archive": ARCHIVE}
"""The parts of a form, and the files that they become."""

MOST_PARTS = 8

MOST_MEMBERS = 250_000
"""Members of one archive, of which `zipfile` keeps some 600 bytes each."""

RATIO = 20
"""Times its own size that a compressed TAR may unpack to; photos in it stay as they are."""

FOLDER = 16 << 10
"""Bytes that the folder and the rows of a job are counted as, beside its files."""

THREADS = 3
"""Bodies of jobs that one process reads at the same time."""

BODIES = ThreadPoolExecutor(THREADS, "bodies of jobs")
"""Threads of their own, because an archive of gigabytes takes minutes: requests never wait here."""

TURNS = FairSemaphore(THREADS)
"""Turns at these threads: one client leaves at least one of them to the others."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The request of a client: an operation with its options, and a key for repeated requests.

    The images are in the body, unless `query` has a `source` or a `retry_of`.
    """

    client: str
    operation: str
    options: dict[str, Any]
    query: JobQuery
    key: str | None = None

    def digested(self, kind: str) -> bytes:
        """Return the request that an Idempotency-Key stands for, beside the bytes of the body."""
        equal = [self.operation, self.options, self.query.model_dump(), kind]
        return json.dumps(equal, sort_keys=True, default=str).encode()


def share_of(most: int) -> int:
    """Return the bytes that a client may store, of `most` bytes of the data folder."""
    return most * 3 // 4


class Jobs:
    """The jobs of the data folder, as this process sees them. Every client has jobs of its own."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        folder: DataFolder,
        storage: Storage,
        worker: ImageWorker,
        work_of: WorkOf,
        most: int,
        counters: Counters,
        stopping: Callable[[], bool],
        on_item: Callable[[str], None],
    ) -> None:
        self.folder, self.storage, self.worker = folder, storage, worker
        self._settings, self._counters, self._stopping = settings, counters, stopping
        self.store = store = JobStore(database, settings.job_retention)
        self.leaving = False
        """Set when this process accepts no more connections: its followers go on elsewhere."""
        self._runner = Runner(store, folder, worker, work_of, most, stopping, on_item)
        self._chunk = min(LARGEST_CHUNK, max(SMALLEST_CHUNK, most))
        self._arriving = Counter[str]()
        self.endings = Endings(store, self._all, storage, WebhookSender.from_settings(settings))
        self.on_states: Callable[[Mapping[str, int]], None] = lambda _states: None
        """Takes the number of jobs in each state, at each sweep."""
        self._tasks: list[asyncio.Task[None]] = []
        self._next_search = 0.0

    async def start(self) -> None:
        """Go on with the jobs of the data folder; raises DatabaseFailed."""
        await self.store.release_abandoned()
        work = (self._runner.run(), self._sweep(), self.endings.run())
        self._tasks = [asyncio.create_task(each) for each in work]

    async def aclose(self) -> None:
        """Finish the chunks in work within the drain time, give the rest back, and end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await self._runner.idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.endings.sender.aclose()
        self.store.database.close()

    async def _sweep(self) -> None:
        """Sweep every SWEEP seconds until this is cancelled, as all processes do."""
        while True:
            with surviving("a sweep of the jobs"):
                await self.sweep()
            await asyncio.sleep(SWEEP)

    async def sweep(self) -> None:
        """Free the chunks of processes that died, remove expired jobs, and sometimes folders that
        belong to no job.

        Raises DatabaseFailed and OSError.
        """
        store, most = self.store, self._settings.max_data_bytes
        self.on_states(await store.by_state())
        if await store.release_abandoned():
            self._runner.wake()
        stored = await store.stored()
        share = share_of(most) if sum(stored.values()) < most else 0
        self._runner.full_clients = [client for client, n in stored.items() if n >= share]
        while expired := await store.expire():
            await self._remove(expired)
        await store.forget()
        if time.monotonic() >= self._next_search:
            self._next_search = time.monotonic() + SEARCH
            idle = await asyncio.to_thread(self.folder.unchanged)
            await self._remove({*idle} - await store.kept())

    async def _remove(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            await asyncio.to_thread(self.folder.remove, id_)

    async def accept(self, asked: JobRequest, request: Request, kind: str, n_bytes: int) -> Job:
        """Return the queued job of a body of media type `kind`, which announces `n_bytes` or 0.

        With a key that the client used before it is the job of that time. Raises ServiceError.
        """
        query = asked.query
        if query.source is not None and query.retry_of is not None:
            raise InvalidParameter.of("source", "give it or `retry_of`, not both")
        if query.source is None and query.include is not None:
            text = "it chooses names below `source`, which is missing"
            raise InvalidParameter.of("include", text)
        check_media_type(kind, needed=query.source is None and query.retry_of is None)
        self._check_size(n_bytes)
        arriving = self._arriving[asked.client]
        if arriving >= ARRIVING:
            raise TooManyJobs(
                f"{arriving} bodies of your jobs are arriving; send the next when one has arrived",
                retry_after=5.0,
            )
        self._arriving[asked.client] += 1
        try:
            return await self._accepted(asked, request, kind)
        finally:
            self._arriving[asked.client] -= 1
            self._arriving += Counter()  # drops clients without a body

    def _check_added(self, client: str, unfinished: int, stored: Mapping[str, int]) -> None:
        """Raise the error of a job with which its client, or all, have more than they may."""
        most = self._settings.max_jobs_per_client
        if unfinished > most:
            raise TooManyJobs(
                f"{unfinished - 1} of your jobs are not finished; {most} may be "
                "(DARKROOM_MAX_JOBS_PER_CLIENT); wait for one, or cancel one",
                retry_after=30.0,
            )
        most = self._settings.max_data_bytes
        if sum(stored.values()) > most or stored[client] > share_of(most):
            raise self._full()

    def _check_size(self, n_bytes: int, text: str = "the body has") -> None:
        """Raise the error of a file that no job of any client may have."""
        most = self._settings.max_job_bytes
        if n_bytes > most:
            raise TooLarge(f"{text} more than {most} bytes; make several jobs")
        if n_bytes > share_of(self._settings.max_data_bytes):
            raise self._full()

    def _full(self) -> StorageFull:
        most = self._settings.max_data_bytes
        return StorageFull(
            f"jobs may store {most} bytes (DARKROOM_MAX_DATA_BYTES), those of one client "
            f"{share_of(most)} (three quarters of DARKROOM_MAX_DATA_BYTES), and this body does not "
            "fit; delete finished jobs, or wait until some expire"
        )

    async def _accepted(self, asked: JobRequest, request: Request, kind: str) -> Job:
        query, storage = asked.query, self.storage
        source = None if query.source is None else storage.readable(query.source)
        target = None if query.destination is None else str(storage.writable(query.destination))
        # Ids are ordered by the time at which they were made, in milliseconds since 1970.
        id_ = f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
        folder = self.folder.of(id_)
        new: Job | None = None
        try:
            await asyncio.to_thread(folder.mkdir, mode=0o700)
            digest = hashlib.sha256(asked.digested(kind))
            if source is not None:
                include = [each for each in (query.include or "").split(",") if each]
                made = await self._listed(source, include, folder)
            elif query.retry_of is not None:
                made = await self._retried(query.retry_of, asked.client, folder)
            else:
                await self._receive(request, kind, folder, digest)
                with departure_of(request.scope):
                    made = await self._in_turn(asked.client, folder)
            await asyncio.to_thread(self.folder.sync, id_)
            archive = folder / ARCHIVE
            new = Job(
                id=id_,
                client=asked.client,
                state=State.QUEUED,
                operation=asked.operation,
                options=asked.options,
                total=made.total,
                done=0,
                failed=0,
                stored=FOLDER + made.size + (archive.stat().st_size if archive.exists() else 0),
                created=time.time(),
                key=asked.key,
                digest=digest.hexdigest(),
                destination=target,
                concurrency=query.concurrency,
                max_failures=query.max_failures,
            )
        except OSError as error:
            raise StorageFull(f"the data folder takes no more: {error.strerror}") from None
        finally:
            if new is None:
                await asyncio.to_thread(self.folder.remove, id_)
        # To its end: it would not be known whether a commit that is cancelled was made.
        queued = await to_its_end(self._queued(new, made, query.webhook))
        if queued.digest != new.digest:
            raise IdempotencyMismatch(
                "this Idempotency-Key was used for another body, operation or options; take a new "
                "key for new work"
            )
        return queued

    async def _queued(self, new: Job, made: ManifestWriter, webhook: str | None) -> Job:
        """Return the new job once it is in the database, or the job that has its key already.

        The files of a new job stay unless the database has none: a commit whose answer was lost may
        have been made. If the database does not answer at all, the next start decides.
        """
        targets = {DESTINATION: new.destination, WEBHOOK: webhook}
        endings = [Ending(new.id, kind, to) for kind, to in targets.items() if to is not None]

        try:
            check = partial(self._check_added, new.client)
            queued = await self.store.add(new, made.spans, endings, check)
        except DatabaseFailed:
            found = await self.store.find(new.id)
            if found is None:
                await self._remove([new.id])
                raise
            queued = found
        except ServiceError:
            await self._remove([new.id])
            raise
        if queued.id != new.id:
            await self._remove([new.id])
        self._runner.wake()
        return queued

    # Bodies.

    async def _receive(self, request: Request, kind: str, folder: Path, digest: Any) -> None:
        """Write a body of media type `kind`; raises ServiceError, and OSError if the disk fails."""
        size = 0

        async def save(path: Path, content: AsyncIterator[bytes]) -> None:
            nonlocal size
            async with aiofiles.open(path, "wb", buffering=BUFFER, opener=private) as file:
                async for piece in content:
                    size += len(piece)
                    self._check_size(size)
                    digest.update(piece)
                    await file.write(piece)

        if kind != FORM:
            name = ARCHIVE if kind in ARCHIVES else SENT
            await save(folder / name, request.stream())
            return
        events = segments(request, MOST_PARTS)
        async for head in events:
            assert isinstance(head, MultipartSegment)
            if head.name not in PARTS or (folder / PARTS[head.name]).exists():
                text = "a form has one `manifest` and one `archive`; options are in the query"
                raise InvalidParameter(text, [FieldError(str(head.name)[:60], text)])
            digest.update(head.name.encode())
            path = folder / PARTS[head.name]
            await save(path, _content(events))
            if not path.stat().st_size and not filename_of(head):
                path.unlink()  # a file input of an HTML form that a person left empty
        if not (folder / ARCHIVE).exists():
            raise MalformedRequest("the form has no `archive`; a manifest alone needs no form")

    async def _in_turn(self, client: str, folder: Path) -> ManifestWriter:
        limits = ArchiveLimits(members=min(MOST_MEMBERS, self._settings.max_job_items))
        async with TURNS.hold(client):
            return await run_to_end(BODIES, self._read, folder, limits, stop=limits.stop.set)

    def _read(self, folder: Path, limits: ArchiveLimits) -> ManifestWriter:
        """Make the manifest of the saved body; its items may be members of the archive."""
        sent, saved, archive = folder / SENT, folder / ARCHIVE, None
        with ExitStack() as stack:
            if saved.exists():
                self._unpack(folder, limits)
                archive = stack.enter_context(open_archive(saved, limits))
                sync_path(saved)
            writer = self._writer(folder, archive.find if archive else None)
            stack.enter_context(closing(writer))
            if sent.exists():
                writer.read(sent)
                sent.unlink()
            for each in giving_way(archive.members() if archive and not writer.total else ()):
                writer.add(StoredLine(path=each.name, member=place_of(each)))
            if archive and not writer.total:
                raise MalformedRequest("the archive has no files")
            writer.finish()
        return writer

    def _unpack(self, folder: Path, limits: ArchiveLimits) -> None:
        """Replace a compressed TAR by a plain one, because jobs read members in any order.

        An uncompressed archive stays as it is. Raises BadArchive, TooLarge and StorageFull.
        """
        packed, plain, size = folder / ARCHIVE, folder / UNPACKED, 0
        with open(plain, "wb", opener=private) as file:
            for piece in unpacked(packed, replace(limits, ratio=RATIO)):
                size += len(piece)
                self._check_size(size, "the archive unpacks to")
                file.write(piece)
        if size:
            os.replace(plain, packed)
        else:
            plain.unlink()

    def _writer(self, folder: Path, find: Any = None) -> ManifestWriter:
        most = self._settings.max_job_items
        return ManifestWriter(folder / MANIFEST, most, chunk=self._chunk, find=find)

    # Jobs without a body.

    async def _listed(
        self, prefix: Location, include: Sequence[str], folder: Path
    ) -> ManifestWriter:
        """Write an item for each file whose name below the prefix matches `include`, or for
        all files; the id of an item is that name.
        """
        writer = await asyncio.to_thread(self._writer, folder)
        with closing(writer):
            async with aclosing(self.storage.list(prefix)) as names:
                async for name in names:
                    if include and not any(fnmatchcase(name, each) for each in include):
                        continue
                    url = str(prefix.below(name))
                    if len(url) > MAX_URL:
                        text = f"an address below it is longer than {MAX_URL}"
                        raise InvalidParameter.of("source", text)
                    id_ = name.encode("utf-8", "replace").decode()
                    writer.add(StoredLine(id_ if len(id_) <= LONGEST_ID else None, url))
            if not writer.total:
                raise InvalidParameter.of("source", f"there is no file below {prefix}")
            await asyncio.to_thread(writer.finish)
        return writer

    async def _retried(self, id_: str, client: str, folder: Path) -> ManifestWriter:
        """Write the items of another job that failed, with its archive.

        The items that were not done come too if that job failed as a whole.
        """
        job = await self._ended(id_, client)
        old, unrecorded = self.folder.of(job.id), job.state is State.FAILED
        failed = bytearray([unrecorded]) * job.total
        try:
            async with aclosing(self._all(job)) as records:
                async for text in whole_lines(records):
                    await asyncio.to_thread(_mark, failed, text)
            writer = await asyncio.to_thread(self._copied, old, folder, failed, job.id)
            await self._ended(job.id, client)  # else it was removed meanwhile, with its archive
        except FileNotFoundError:
            raise NotFound(f"job {job.id} was removed meanwhile, with its files") from None
        return writer

    def _copied(self, old: Path, folder: Path, failed: bytearray, id_: str) -> ManifestWriter:
        """Write the marked items of an old manifest as a new manifest; share the archive."""
        with closing(self._writer(folder)) as writer, (old / MANIFEST).open("rb") as file:
            for index, text in giving_way(enumerate(file)):
                if failed[index]:
                    line = parsed(text)
                    writer.add(line if line.id else msgspec.structs.replace(line, id=f"{index}"))
            if not writer.total:
                raise InvalidParameter.of("retry_of", f"no item of job {id_} failed")
            writer.finish()
        if (old / ARCHIVE).exists():
            _share(old / ARCHIVE, folder / ARCHIVE)
        return writer

    async def _ended(self, id_: str, client: str) -> Job:
        """Return a job of a client whose results are all there."""
        job = await self.store.of_client(id_, client)
        if job.state in UNFINISHED:
            text = f"job {job.id} is {job.state.value}; wait for its end"
            raise InvalidParameter.of("retry_of", text)
        if job.state is State.EXPIRED:
            raise ResultsExpired("the results were kept for their time (DARKROOM_JOB_RETENTION)")
        return job

    # Jobs that exist.

    async def cancel(self, id_: str, client: str) -> Job:
        """Cancel a job unless it has finished; return it as it is then."""
        job = await self.store.of_client(id_, client)
        if job.state not in UNFINISHED:
            return job
        await self.store.cancel(id_)
        self._runner.wake()
        return await self.store.of_client(id_, client)

    async def delete(self, id_: str, client: str) -> State | None:
        """Cancel a job that is not finished, and return its state; remove a finished job: None."""
        job = await self.store.of_client(id_, client)
        if job.state in UNFINISHED:
            return (await self.cancel(id_, client)).state
        if await self.store.remove(id_):
            await asyncio.to_thread(self.folder.remove, id_)
        return None

    async def results(
        self,
        job: Job,
        offset: int = 0,
        limit: int | None = None,
        *,
        follow: bool = False,
        whole: bool = False,
    ) -> OpenResults:
        """Open the records of a job from number `offset` on, in the order of commit.

        With `follow` the records of a job that still runs are waited for. When the server stops,
        they end early, or break off where a reader needs the `whole`. Raises ResultsExpired,
        NotFound and TooManyFollowers.
        """
        offset = min(offset, job.total)  # databases take numbers of 64 bits
        end = None if limit is None else offset + limit
        stopping = on_close = None
        if follow and job.state in UNFINISHED:
            stopping, on_close = self._leaves, self._follower(job.client)
        where = self.store, self.folder, offset, end
        found = OpenResults(job, *where, stopping, on_close, whole=whole)
        try:
            if job.state is State.EXPIRED or not await found.open():
                now = await self.store.of_client(job.id, job.client)
                if now.state is State.EXPIRED:
                    text = "the results were kept for their time (DARKROOM_JOB_RETENTION)"
                    raise ResultsExpired(text)
                raise NotFound("results of the job are not in the data folder any more")
        except BaseException:
            await found.aclose()
            raise
        return found

    def _leaves(self) -> bool:
        return self.leaving or self._stopping()

    def _follower(self, client: str) -> Callable[[], None]:
        """Count a follower of a client; return a function that ends the count. Raises
        TooManyFollowers.
        """
        key = self._counters.key(f"client {client}")
        if not self._counters.take_for(key, ByKey.FOLLOWERS, 1, MOST_FOLLOWERS):
            raise TooManyFollowers(
                f"{MOST_FOLLOWERS} requests of yours follow results of jobs; end one of them, or "
                "read without `follow`",
                retry_after=5.0,
            )
        return lambda: self._counters.add_for(key, ByKey.FOLLOWERS, -1)

    async def _all(self, job: Job) -> AsyncGenerator[bytes, None]:
        async with aclosing(await self.results(job)) as found, aclosing(found.read()) as records:
            async for piece in records:
                yield piece


def check_media_type(kind: str, *, needed: bool) -> None:
    """Raise UnsupportedMedia for a body that no job is made of.

    Where the images come from a `source` or from another job, no body is `needed`, and a form is
    refused too, because any web page may send it.
    """
    allowed = (JSON, *JSON_LINES, *ARCHIVES, *([FORM] if needed else [""]))
    if kind not in allowed:
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; a job is made of a manifest as {JSON_LINES[0]} "
            f"or {JSON}, a ZIP or TAR, or a form with both; `source` and `retry_of` take none"
        )


async def _content(events: AsyncIterator[MultipartSegment | bytes | None]) -> AsyncIterator[bytes]:
    """Yield the pieces of a part."""
    async for piece in events:
        if not isinstance(piece, bytes | bytearray):
            return
        yield bytes(piece)


def _mark(failed: bytearray, text: bytes) -> None:
    """Mark failed items alone, by their records, which are whole lines."""
    for found, _ in outcomes(text):
        failed[found.index] = found.status != "ok"


def _share(archive: Path, other: Path) -> None:
    """Give a file another name, or copy it where the file system cannot do that.

    The file stays until both jobs are removed. Raises OSError.
    """
    try:
        os.link(archive, other)
    except OSError:
        shutil.copyfile(archive, other, follow_symlinks=False)
        other.chmod(0o600)
        sync_path(other)
