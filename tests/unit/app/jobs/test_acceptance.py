"""Jobs that are accepted: their bodies, their room, and items of storage and of other jobs."""

import asyncio
import io
import os
import tarfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive

from app.http.request import DEPARTURE, Departure
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.jobs import ARRIVING, JobRequest, Jobs
from app.jobs.manifest import ManifestWriter, StoredLine, read
from app.jobs.store import Database, DatabaseFailed, Job, JobStore, Span, State
from app.storage.location import parse
from app.storage.storage import Storage
from models.api.jobs import JobQuery
from models.domain.errors import (
    InternalError,
    InvalidParameter,
    NotFound,
    StorageFull,
    TooLarge,
    TooManyJobs,
)
from models.settings import Settings
from tests.fakes import GUARD
from tests.job_store import job
from tests.unit.app.archives.test_reading import zipped as packed
from tests.worker_fixture import wait_until

SCOPE = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}
LINES, ZIP = "application/x-ndjson", "application/zip"
LINE = b'{"data": "data:,"}'
NO_SOURCE = JobRequest("me", "classify", {}, JobQuery())


def request(
    body: bytes = LINE,
    before: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0),
    departure: Departure | None = None,
    kind: str = "",
) -> Request:
    """Return a request whose body comes after `before`; its client stays."""
    bodies: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if not bodies:
            await asyncio.Event().wait()
        await before()
        return bodies.pop()

    headers = [(b"content-type", kind.encode())]
    scope = {**SCOPE, "headers": headers, DEPARTURE: departure or Departure()}
    return Request(scope, cast(Receive, receive))


class Accepting(Jobs):
    """What accepts jobs in one process, with the folder and the tables of all jobs."""

    def __init__(
        self, root: Path, kind: Callable[[Database, float], JobStore] = JobStore, **settings: Any
    ) -> None:
        self.folder = DataFolder(root)
        self.folder.make()
        self.database = Database(None, root)
        self.store = kind(self.database, 100.0)
        self.storage = cast(Storage, SimpleNamespace(list=self.listed, readable=parse))
        self._settings, self._chunk, self._arriving = Settings(**settings), 32, Counter[str]()
        self._runner: Any = SimpleNamespace(wake=lambda: None)

    async def listed(self, _location: object) -> AsyncIterator[str]:
        yield "photo.jpg"

    async def _all(self, made: Job) -> AsyncGenerator[bytes, None]:
        yield (self.folder.of(made.id) / "results").read_bytes()

    async def old_job(self, total: int = 1, archive: bool = True, **others: Any) -> Path:
        """Add a finished job, every third item of which failed; return its folder."""
        (folder := self.folder.of("0")).mkdir()
        writer = ManifestWriter(folder / MANIFEST, 100)
        for number in range(total):
            id_ = f"i{number}" if number % 2 else None
            writer.add(StoredLine(id_, path=f"{number}.jpg", member=(number, 10, 0)))
        writer.finish()
        if archive:
            (folder / ARCHIVE).write_bytes(b"archive")
        statuses = {n: "error" if n % 3 == 0 else "ok" for n in reversed(range(total))}
        lines = [f'{{"index": {n}, "status": "{status}"}}\n' for n, status in statuses.items()]
        (folder / "results").write_text("".join(lines))
        ended = {"state": State.SUCCEEDED, "total": total, "done": total, **others}
        await self.store.add(job("0", **ended), writer.spans)
        return folder

    async def items(self, made: Job) -> list[StoredLine]:
        """Return the items of a job, which are few."""
        path = self.folder.of(made.id) / MANIFEST
        return read(path, Span(0, made.total, 0, path.stat().st_size))


@asynccontextmanager
async def opened(*given: Any, **settings: Any) -> AsyncIterator[Accepting]:
    """Open what accepts jobs in a folder."""
    accepts = Accepting(*given, **settings)
    try:
        async with asyncio.timeout(60):
            yield accepts
    finally:
        accepts.database.close()


# Bodies.


@pytest.mark.parametrize("others", [1, 30])
async def test_bodies_that_arrive_at_the_same_moment_get_four_places_of_one_client(
    tmp_path: Path, others: int
) -> None:
    async with opened(tmp_path, max_jobs_per_client=100) as accepts:
        ended = asyncio.Event()

        def accepted(client: str) -> asyncio.Task[Job]:
            asked = replace(NO_SOURCE, client=client)
            body = request(before=ended.wait)
            return asyncio.ensure_future(accepts.accept(asked, body, LINES, 0))

        flood = [accepted("one") for _ in range(ARRIVING + others)]
        other = accepted("other")
        await wait_until(lambda: sum([each.done() for each in flood]) >= others)
        ended.set()
        found = await asyncio.gather(*flood, other, return_exceptions=True)
        assert len([each for each in found if isinstance(each, TooManyJobs)]) == others
        assert isinstance(found[-1], Job)


QUICK = packed({"a.jpg": b"1"})


async def test_a_file_input_that_was_left_empty_is_no_part_of_a_form(tmp_path: Path) -> None:
    def part(name: str, filename: str, content: bytes) -> bytes:
        head = (
            f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
        )
        return head.encode() + content + b"\r\n"

    async with opened(tmp_path) as accepts:
        body = part("manifest", "", b"") + part("archive", "a.zip", QUICK) + b"--b--\r\n"
        form = request(body, kind="multipart/form-data; boundary=b")
        assert (await accepts.accept(NO_SOURCE, form, "multipart/form-data", 0)).total == 1


async def test_a_folder_that_cannot_be_made_is_no_fault_of_the_server(tmp_path: Path) -> None:
    async with opened(tmp_path) as accepts:
        (tmp_path / "jobs").rmdir()  # as on a disk that was taken away
        with pytest.raises(StorageFull):
            await accepts.accept(NO_SOURCE, request(), LINES, 0)


async def test_a_job_that_exceeds_the_folder_when_its_body_is_complete_is_refused_and_removed(
    tmp_path: Path,
) -> None:
    """Other jobs have taken the room while the body arrived."""

    async with opened(tmp_path, max_data_bytes=1 << 20) as accepts:

        async def taken() -> None:
            await accepts.store.add(job("0", "you", stored=1 << 20), [])

        with pytest.raises(StorageFull, match="DARKROOM_MAX_DATA_BYTES"):
            await accepts.accept(NO_SOURCE, request(before=taken), LINES, 0)
        assert await accepts.store.listed("me", None, None, 10) == []
        assert [*(tmp_path / "jobs").iterdir()] == []


async def test_a_compressed_tar_counts_with_what_it_unpacks_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = io.BytesIO()
    with tarfile.open(fileobj=sent, mode="w:gz") as archive:
        (header := tarfile.TarInfo("a.jpg")).size = 4 << 20
        archive.addfile(header, io.BytesIO(bytes(header.size)))
    tar, kind = sent.getvalue(), "application/gzip"
    async with opened(tmp_path, max_data_bytes=1 << 20) as accepts:
        with pytest.raises(StorageFull, match="does not fit"):
            await accepts.accept(NO_SOURCE, request(tar), kind, 0)
        monkeypatch.setattr(Settings, "max_job_bytes", 1 << 19)
        with pytest.raises(TooLarge, match="the archive unpacks to more than 524288 bytes"):
            await accepts.accept(NO_SOURCE, request(tar), kind, 0)
        assert [*(tmp_path / "jobs").iterdir()] == []


# What is accepted stays.


class Unsure(JobStore):
    """Jobs that are added without an answer: it is lost, or awaited until `answers` is set."""

    lost = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.added, self.answers = asyncio.Event(), asyncio.Event()

    async def add(self, job: Job, spans: Sequence[Span], *others: Any) -> Job:
        await super().add(job, spans, *others)
        self.added.set()
        if self.lost:
            raise DatabaseFailed("the connection was lost")
        await self.answers.wait()
        return job


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cancelled"])
async def test_a_job_whose_commit_was_made_keeps_its_files(
    tmp_path: Path, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its files it would fail, and a repeated request with its key would get that job."""
    monkeypatch.setattr(Unsure, "lost", lost)

    async with opened(tmp_path, Unsure) as accepts:
        store = cast(Unsure, accepts.store)
        task = asyncio.ensure_future(accepts.accept(NO_SOURCE, request(), LINES, 0))
        await asyncio.wait_for(store.added.wait(), GUARD)
        if not lost:
            task.cancel()
            asyncio.get_running_loop().call_later(0.1, store.answers.set)
        await asyncio.wait([task], timeout=GUARD)
        (made,) = await store.listed("me", None, None, 10)
        assert (accepts.folder.of(made.id) / MANIFEST).exists()
        assert lost is not task.cancelled()


@pytest.mark.parametrize("source", [{}, {"source": "s3://bucket/a"}, {"retry_of": "0"}], ids=str)
async def test_what_is_accepted_survives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any]
) -> None:
    """All files of the job, their names and that of its folder are on the disk before its row."""
    synced: dict[str, set[str]] = {}
    sync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced[str(path)] = {*os.listdir(path)} if path.is_dir() else set()
        sync(descriptor)

    class Noted(JobStore):
        async def add(self, job: Job, spans: Sequence[Span], *others: Any) -> Job:
            if job.id != "0":
                folder = tmp_path / "jobs" / job.id
                files = {MANIFEST} | ({ARCHIVE} if "retry_of" in source else set())
                assert synced[str(folder)] == files
                assert job.id in synced[str(folder.parent)]
                assert str(folder / MANIFEST) in synced
            return await super().add(job, spans, *others)

    async with opened(tmp_path, Noted) as accepts:
        await accepts.old_job()
        monkeypatch.setattr(os, "fsync", noted)
        given = replace(NO_SOURCE, query=JobQuery(**source))
        kind = "" if source else LINES
        assert (await accepts.accept(given, request(), kind, 0)).total == 1


# Items of other jobs.

RETRY = replace(NO_SOURCE, query=JobQuery(retry_of="0"))


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
async def test_failed_items_are_found_in_records_of_any_order(tmp_path: Path, state: State) -> None:
    """The items without a record are tried again too if the job failed as a whole."""

    async with opened(tmp_path) as accepts:
        folder = await accepts.old_job(50, state=state)
        text = (folder / "results").read_text().splitlines(keepends=True)
        (folder / "results").write_text("".join(text[5:]))  # the last five items are not done
        made = await accepts.accept(RETRY, request(), "", 0)
        found = await accepts.items(made)
        numbers = [*range(0, 45, 3), *(range(45, 50) if state is State.FAILED else ())]
        assert [line.path for line in found] == [f"{n}.jpg" for n in numbers]
        assert [line.id for line in found] == [f"i{n}" if n % 2 else f"{n}" for n in numbers]


async def test_a_job_of_what_failed_is_refused_where_nothing_failed_or_the_disk_has(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as accepts:
        folder = await accepts.old_job(50)
        (folder / MANIFEST).write_text('{"url": "https://a.exam')
        with pytest.raises(InternalError, match="damaged"):
            await accepts.accept(RETRY, request(), "", 0)
        (folder / "results").write_text("")
        with pytest.raises(InvalidParameter, match="no item of job 0 failed"):
            await accepts.accept(RETRY, request(), "", 0)


@pytest.mark.parametrize("name", [MANIFEST, ARCHIVE])
async def test_no_job_is_made_of_one_that_is_removed_meanwhile(tmp_path: Path, name: str) -> None:
    """It would be accepted without its archive, and fail."""

    class Removing(Accepting):
        async def _all(self, made: Job) -> AsyncGenerator[bytes, None]:
            async for text in super()._all(made):
                yield text
            await self.store.remove("0")  # the row, then the files in any order
            (self.folder.of("0") / name).unlink()

    async with opened(tmp_path) as accepts:
        await accepts.old_job()
        removing = Removing(tmp_path)
        with pytest.raises(NotFound):
            await removing.accept(RETRY, request(), "", 0)
        removing.database.close()
