"""Places for bodies that arrive: few for one client, whatever arrives at the same moment."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import Request
from starlette.types import Message, Receive

from app.jobs.acceptance import ARRIVING, Acceptance
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.sources import JobRequest, JobSource, ManifestSources
from app.jobs.store.database import opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, Span, State
from app.storage.local_files import Entry
from app.storage.location import parse
from app.storage.storage import Storage
from models.domain.errors import StorageFull, TooManyJobs
from models.settings import Settings
from tests.fakes import GUARD
from tests.worker_fixture import wait_until

SCOPE = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}
KIND = "application/x-ndjson"


def acceptance(folder: DataFolder, rows: JobRows, settings: Settings | None = None) -> Acceptance:
    """Return what accepts jobs in one process."""
    no_sources = cast(ManifestSources, None)
    return Acceptance(folder, rows, settings or Settings(), 32, lambda: None, no_sources)


def asked(client: str) -> JobRequest:
    return JobRequest(client, "classify", {}, None, None, None, None)


@pytest.mark.parametrize("others", [1, 30])
def test_bodies_that_arrive_at_the_same_moment_get_four_places_of_one_client(
    tmp_path: Path, others: int
) -> None:
    ended = asyncio.Event()

    def receive() -> Receive:
        return _body(ended.wait)

    async def scenario() -> list[object]:
        folder, settings = DataFolder(tmp_path), Settings(max_jobs_per_client=100)
        folder.make()
        engine = await opened(None, tmp_path)
        accepting = acceptance(folder, JobRows(engine), settings)

        def accepted(client: str) -> asyncio.Task[object]:
            request = Request(SCOPE, receive())
            return asyncio.ensure_future(accepting.accept(asked(client), request, KIND, 0))

        try:
            flood = [accepted("one") for _ in range(ARRIVING + others)]
            other = accepted("other")
            await wait_until(lambda: sum([each.done() for each in flood]) >= others)
            ended.set()
            found = await asyncio.gather(*flood, other, return_exceptions=True)
        finally:
            await engine.dispose()
        return [*found]

    found = asyncio.run(scenario())
    refused = [each for each in found if isinstance(each, TooManyJobs)]
    assert len(refused) == others
    assert not isinstance(found[-1], Exception)


async def _at_once() -> None:
    """Wait for nothing."""


def _body(before: Callable[[], Awaitable[object]] = _at_once) -> Receive:
    """Return what receives a small body after `before`; its client stays."""
    bodies: list[Message] = [{"type": "http.request", "body": b'{"data": "data:,"}'}]

    async def receive() -> Message:
        if not bodies:
            await asyncio.Event().wait()
        await before()
        return bodies.pop()

    return receive


class Unsure(JobRows):
    """Jobs that are added without an answer: that of the commit is lost, or awaited
    until `answers` is set.
    """

    def __init__(self, engine: AsyncEngine, *, lost: bool) -> None:
        super().__init__(engine)
        self.added, self.answers, self._lost = asyncio.Event(), asyncio.Event(), lost

    async def add(self, job: Job, spans: Sequence[Span], *others: Any) -> Job:
        await super().add(job, spans, *others)
        self.added.set()
        if self._lost:
            raise OperationalError("COMMIT", {}, ConnectionResetError("the connection was lost"))
        await self.answers.wait()
        return job


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "cancelled"])
def test_a_job_whose_commit_was_made_keeps_its_files(tmp_path: Path, lost: bool) -> None:
    """Without its files it would fail, and a repeated request with its key would get that job."""

    async def test() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        folder.make()
        rows = Unsure(engine, lost=lost)
        accepting = acceptance(folder, rows)
        try:
            work = accepting.accept(asked("me"), Request(SCOPE, _body()), KIND, 0)
            task = asyncio.ensure_future(work)
            await asyncio.wait_for(rows.added.wait(), GUARD)
            if not lost:
                task.cancel()
            await asyncio.wait([task], timeout=GUARD)
            rows.answers.set()
            (made,) = await rows.listed("me", None, None, 10)
            assert (folder.of(made.id) / MANIFEST).exists()
            assert lost is not task.cancelled()
        finally:
            await engine.dispose()

    asyncio.run(test())


ADDRESS = "https://a.example/photo.jpg"


async def _storage_lines(_location: object) -> AsyncIterator[Entry]:
    yield Entry("photo.jpg", 1)


async def _failed_records(_job: Job) -> AsyncIterator[bytes]:
    yield b'{"index": 0, "status": "error"}\n'


@pytest.mark.parametrize(
    "source", [None, JobSource(parse("s3://bucket/a")), JobSource(retry_of="0")]
)
def test_what_is_accepted_survives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: JobSource | None
) -> None:
    """All files of the job, their names and that of its folder are on the disk before its row."""
    synced: dict[str, set[str]] = {}
    sync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced[str(path)] = {*os.listdir(path)} if path.is_dir() else set()
        sync(descriptor)

    class Noted(JobRows):
        async def add(self, job: Job, spans: Sequence[Span], *others: Any) -> Job:
            if job.id != "0":
                files = {MANIFEST} | ({ARCHIVE} if source and source.retry_of else set())
                assert synced[str(folder.of(job.id))] == files
                assert job.id in synced[str(folder.of(job.id).parent)]
                assert str(folder.of(job.id) / MANIFEST) in synced
            return await super().add(job, spans, *others)

    folder = DataFolder(tmp_path)

    async def test() -> None:
        engine = await opened(None, tmp_path)
        folder.make()
        rows = Noted(engine)
        old = Job("0", "me", State.SUCCEEDED, "classify", {}, 1, 1, 1, 5, 1000.0)
        await rows.add(old, [Span(0, 1, 0, 5)])
        (folder.add("0") / MANIFEST).write_text(f'{{"url": "{ADDRESS}"}}\n')
        (folder.of("0") / ARCHIVE).write_bytes(b"archive")
        storage = cast(Storage, SimpleNamespace(list=_storage_lines))
        settings = Settings()
        sources = ManifestSources(storage, folder, rows, settings, 32, cast(Any, _failed_records))
        accepting = Acceptance(folder, rows, settings, 32, lambda: None, sources)
        monkeypatch.setattr(os, "fsync", noted)
        try:
            given = replace(asked("me"), source=source)
            job = await accepting.accept(given, Request(SCOPE, _body()), KIND, 0)
            assert job.total == 1
        finally:
            await engine.dispose()

    asyncio.run(test())


def test_a_folder_that_cannot_be_made_is_no_fault_of_the_server(tmp_path: Path) -> None:
    async def test() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        # The folder of all jobs is missing, as on a disk that was taken away.
        accepting = acceptance(folder, JobRows(engine))
        try:
            with pytest.raises(StorageFull):
                await accepting.accept(asked("me"), Request(SCOPE, _body()), KIND, 0)
        finally:
            await engine.dispose()

    asyncio.run(test())


def test_a_job_that_exceeds_the_folder_when_its_body_is_complete_is_refused_and_removed(
    tmp_path: Path,
) -> None:
    """Other jobs have taken the room while the body arrived."""

    async def test() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        folder.make()
        rows = JobRows(engine)

        async def taken() -> None:
            other = Job("0", "you", State.QUEUED, "classify", {}, 1, 0, 0, 1 << 20, 1000.0)
            await rows.add(other, [Span(0, 1, 0, 5)])

        accepting = acceptance(folder, rows, Settings(max_data_bytes=1 << 20))
        try:
            with pytest.raises(StorageFull, match="DARKROOM_MAX_DATA_BYTES"):
                await accepting.accept(asked("me"), Request(SCOPE, _body(taken)), KIND, 0)
            assert await rows.listed("me", None, None, 10) == []
        finally:
            await engine.dispose()
        assert [*(tmp_path / "jobs").iterdir()] == []

    asyncio.run(test())
