"""One process works on jobs: chunks are committed once, faults let a job rest or fail."""

import asyncio
import errno
import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from app.admission import Admission, Limits, Permit
from app.intake.item import Item, Url
from app.jobs import runner as running
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.runner import (
    BEHIND,
    LONGEST_ASKED,
    PATIENCE,
    PAUSE,
    TRIES,
    ChunkRecords,
    ImageWorker,
    Inputs,
    Runner,
    Work,
)
from app.jobs.store import Chunk, Database, DatabaseFailed, Job, JobStore, Span, State
from app.pipeline.outcomes import Answer, Timings
from app.pipeline.pipeline import Pipeline
from app.storage.storage import Storage
from models.domain.errors import (
    InvalidParameter,
    NotFound,
    OriginBusy,
    OriginFailed,
    ServiceError,
    StorageFull,
    Unavailable,
    Undecodable,
)
from models.domain.job import Lane
from models.settings import Settings
from tests.fakes import GUARD, FakeClock
from tests.job_store import RETENTION, job
from workers.operations import Classify

LINE = StoredLine(url="https://a.example/photo.jpg")
MEMBER = StoredLine(path="photo.jpg", member=(0, 10, 0))
LOST = DatabaseFailed("the connection was lost")


class Quick(ImageWorker):
    """Answers images at once; `begun` is set for the client of each."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage.from_settings(
            Settings(storage_allow_write=((root / "out").as_uri(),))
        )
        self.settings = Settings()
        self.begun = defaultdict[str, asyncio.Event](asyncio.Event)
        self.records = 0

    async def record(
        self, job: Job, _work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        self.begun[job.client].set()
        self.records += 1
        await self.do(index, given, inputs)
        return b"{}\n", False

    async def do(self, _index: int, given: StoredLine, inputs: Inputs) -> None:
        await inputs.content(given)


class Endless(Quick):
    async def do(self, *_: Any) -> None:
        await asyncio.sleep(1000)


Kind = TypeVar("Kind", bound=JobStore)


@asynccontextmanager
async def a_job(
    root: Path,
    kind: Callable[[Database, float], Kind],
    worker: type[Quick] = Quick,
    made: Job | None = None,
    line: StoredLine = LINE,
    chunk: int = 1,
    before: Callable[[Path], object] = lambda _folder: None,
) -> AsyncIterator[tuple[Runner, Kind, Quick]]:
    """Let a runner work on a job of 40 equal items in chunks of one.

    `before` gets the folder of the job.
    """
    made = made or job(total=40)
    folder = DataFolder(root / "data")
    folder.make()
    database, works = Database(None, folder.root), worker(root)
    store = kind(database, RETENTION)
    add(folder, made, line, chunk)
    await store.add(made, spans[made.id])
    before(folder.of(made.id))
    most = 100 if worker is Endless else 4
    work_of = lambda *_: Work(Classify())  # noqa: E731
    runner = Runner(store, folder, works, work_of, most, lambda: False, lambda _: None)
    working = asyncio.create_task(runner.run())
    try:
        async with asyncio.timeout(GUARD):
            yield runner, store, works
    finally:
        working.cancel()
        ended, _ = await asyncio.wait([working], timeout=GUARD)
        database.close()
    assert ended


spans: dict[str, list[Span]] = {}


def add(folder: DataFolder, made: Job, line: StoredLine = LINE, chunk: int = 32) -> None:
    """Write the manifest of a job of equal items."""
    folder.of(made.id).mkdir()
    with closing(ManifestWriter(folder.of(made.id) / MANIFEST, 5000, chunk=chunk)) as writer:
        for _ in range(made.total):
            writer.add(line)
        writer.finish()
        spans[made.id] = writer.spans


async def until_ended(runner: Runner, store: JobStore) -> Job:
    while (found := await store.find("1")) and found.finished is None:
        runner.wake()
        await asyncio.sleep(0.01)
    assert found is not None
    return found


# Chunks.


class SlowClaims(JobStore):
    """Chunks whose claims, except the first, wait until `answers` is set, as at a busy database."""

    def __init__(self, database: Database, retention: float) -> None:
        super().__init__(database, retention)
        self.claims, self.second, self.answers = 0, asyncio.Event(), asyncio.Event()

    async def claim(self, job: str) -> Chunk | None:
        found = await super().claim(job)
        self.claims += 1
        if self.claims > 1:
            self.second.set()
            await self.answers.wait()
        return found


async def test_a_job_that_is_cancelled_while_chunks_are_being_claimed_ends(tmp_path: Path) -> None:
    """The runner looks at its work again meanwhile."""

    async with a_job(tmp_path, SlowClaims, Endless) as (runner, store, _):
        await store.second.wait()
        await store.cancel("1")
        for _ in range(3):
            await runner.look()
        store.answers.set()
        assert (await until_ended(runner, store)).state is State.CANCELLED


async def test_jobs_of_a_client_whose_share_is_full_wait(tmp_path: Path) -> None:
    async with a_job(tmp_path, JobStore) as (runner, store, worker):
        runner.full_clients = ["me"]
        for _ in range(3):
            await runner.look()
        runner.full_clients = ["you"]
        assert not worker.records
        assert (await until_ended(runner, store)).state is State.SUCCEEDED


async def test_many_long_jobs_of_one_client_keep_no_other_client_waiting(tmp_path: Path) -> None:
    class Slow(Quick):
        async def do(self, *_: Any) -> None:
            await asyncio.sleep(0.02)

    async with a_job(tmp_path, JobStore, Slow) as (runner, store, worker):
        long = [job(f"{number}", total=2000) for number in range(2, 12)]
        for made in (*long, job("yours", "you")):
            if made.client == "you":
                await worker.begun["me"].wait()
            add(runner.folder, made)
            await store.add(made, spans[made.id])
            runner.wake()
        await worker.begun["you"].wait()


async def test_a_chunk_that_ended_with_its_process_each_time_becomes_errors(tmp_path: Path) -> None:
    """As of an image that makes a library crash: without this its job would never end."""

    class Tried(JobStore):
        async def claim(self, job: str) -> Chunk | None:
            found = await super().claim(job)
            return found and replace(found, attempts=running.ATTEMPTS + (found.number == 3))

    async with a_job(tmp_path, Tried) as (runner, store, _):
        found = await until_ended(runner, store)
        assert (found.done, found.failed) == (40, 1)
    (results,) = (tmp_path / "data" / "jobs" / "1").glob("results-*.jsonl")
    assert b'"quarantined"' in results.read_bytes()


async def test_a_job_that_is_cancelled_while_it_commits_keeps_what_counts(tmp_path: Path) -> None:
    class SlowCommits(JobStore):
        def __init__(self, database: Database, retention: float) -> None:
            super().__init__(database, retention)
            self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

        async def commit(self, chunk: Chunk, failed: int) -> bool:
            self.begun.set()
            await self.goes_on.wait()
            return await super().commit(chunk, failed)

    async with a_job(tmp_path, SlowCommits) as (runner, store, _):
        await store.begun.wait()
        await store.cancel("1")
        await runner.look()
        store.goes_on.set()
        found = await until_ended(runner, store)
        assert found.state is State.CANCELLED
        assert sum(each.n_items for each in await store.results("1", 0, 100)) == found.done


def test_records_and_the_name_of_their_file_are_synced_also_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, full, synced = os.fsync, [True], list[str]()

    def noted(descriptor: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space left on device")
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    records = ChunkRecords(Chunk("1", 0, 0, 1, 0, 5), tmp_path)
    asyncio.run(records.add(b"{}\n", failed=False))
    with pytest.raises(OSError, match="no space"):
        records.store(tmp_path / "results")
    full[0] = False
    stored = records.store(tmp_path / "results")
    records.close()
    assert (tmp_path / stored.file).read_bytes()[stored.at :] == b"{}\n"
    assert synced == [str(tmp_path / "results"), str(tmp_path)]


# Faults.


async def ended(
    root: Path,
    worker: type[Quick] = Quick,
    line: StoredLine = LINE,
    before: Callable[[Path], object] = lambda _folder: None,
    chunk: int = 1000,
    **others: Any,
) -> tuple[Job, Quick]:
    """Work on a job of 8 items until it has ended; return it with its worker."""
    made = job(total=8, **others)
    async with a_job(root, JobStore, worker, made, line, chunk, before) as (runner, store, works):
        return await until_ended(runner, store), works


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PAUSE", 0.01)
    monkeypatch.setattr(running, "PATIENCE", 0.02)


def cut_in_a_line(folder: Path) -> None:
    whole = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(whole[: len(whole) // 2 + 3])


def without_lines(folder: Path) -> None:
    lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
    (folder / MANIFEST).write_bytes(b"".join(lines[:5]))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("line", "before", "text"),
    [
        (MEMBER, lambda _: None, "cannot be used: No such file or directory"),
        (MEMBER, lambda folder: (folder / ARCHIVE).mkdir(), "cannot be used: Is a directory"),
        (LINE, cut_in_a_line, "the manifest of the job is damaged"),
        (LINE, without_lines, "the manifest of the job is damaged"),
    ],
    ids=["no archive", "a folder as archive", "cut", "lines are missing"],
)
async def test_a_job_whose_files_cannot_be_used_fails_with_a_reason(
    tmp_path: Path, line: StoredLine, before: Callable[[Path], object], text: str
) -> None:
    found, _ = await ended(tmp_path, line=line, before=before)
    assert found.state is State.FAILED
    assert text in (found.problem or {})["detail"]


@pytest.mark.parametrize("taken", ["out", "out/1", "out/1/images"])
async def test_a_job_whose_destination_became_a_file_fails_before_it_computes_anything(
    tmp_path: Path, taken: str
) -> None:
    path = tmp_path / taken
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file")
    found, worker = await ended(tmp_path, destination=(tmp_path / "out" / "1").as_uri())
    assert found.state is State.FAILED
    assert "no folder" in (found.problem or {})["detail"]
    assert worker.records == 0


@pytest.mark.usefixtures("impatient")
async def test_a_job_whose_destination_is_full_keeps_its_records_waits_and_fails_with_the_reason(
    tmp_path: Path,
) -> None:
    class FullDestination(Quick):
        async def do(self, index: int, *_: Any) -> None:
            if index >= 4:
                raise StorageFull("file:///out: its disk, or the quota on it, is full")

    found, worker = await ended(tmp_path, FullDestination, chunk=1)
    assert (found.state, found.done, found.failed) == (State.FAILED, 4, 0)
    assert (found.problem or {})["code"] == "storage_full"
    assert worker.records > 5, "it was tried again"


class FakeStore:
    """Notes jobs that failed, and why jobs wait; `meanwhile` is called while a job fails."""

    def __init__(self) -> None:
        self.failed: list[dict[str, Any]] = []
        self.waits: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def note(self, _id: str, problem: dict[str, Any]) -> None:
        self.waits.append(problem)

    async def fail(self, _id: str, problem: dict[str, Any]) -> None:
        self.failed.append(problem)
        self.meanwhile()


async def faults(*errors: Exception, n: int, done: int = 0) -> FakeStore:
    """Return what became of a job after `n` rests, 1,000 seconds apart; `done` grows each time."""
    store, clock = FakeStore(), FakeClock(1000.0)
    nothing: Any = None
    parts = cast(JobStore, store), nothing, nothing, nothing
    known = Runner(*parts, 1, lambda: False, lambda _: None, clock)
    store.meanwhile = known._resting.clear  # as a look does that comes late

    for number in range(n):
        group = ExceptionGroup("", [ExceptionGroup("", [*errors])])
        await known._take_fault(job(done=done * number), group)
        resting = known._resting.get("1")
        assert store.failed or (resting and resting.until == clock() + PAUSE)
        clock.advance(1000)
    return store


async def test_an_error_that_lasts_is_found_among_those_of_a_group() -> None:
    found = await faults(OSError(errno.EIO, "disk"), InvalidParameter("wrong"), n=1)
    assert [each["detail"] for each in found.failed] == ["wrong"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OriginFailed("x"),
        NotFound("the files of the job are not in the data folder any more"),
        StorageFull("its disk is full"),
        ZeroDivisionError(),
    ],
)
async def test_a_job_that_makes_no_progress_fails_in_the_end(error: Exception) -> None:
    n = int(PATIENCE // 1000) + 1
    waited = await faults(error, n=n)
    assert waited.failed == []
    assert len(waited.waits) == n
    assert (await faults(error, n=n + 1)).failed[0]["status"] >= 404
    assert (await faults(error, n=2 * n, done=1)).failed == [], "it makes progress"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), LOST])
async def test_a_job_waits_without_end_for_room_and_for_the_database(error: Exception) -> None:
    assert (await faults(error, n=20)).failed == []


class Failing:
    """A pipeline whose images fail with `error`; `permits` has the permit of each try."""

    def __init__(self, error: ServiceError) -> None:
        self.error, self.permits = error, list[Permit]()

    async def answer(self, item: Item, _wanted: object, permit: Permit) -> Answer:
        assert item.content == Url(LINE.url or "")
        assert permit.lane is Lane.BACKGROUND
        assert permit.deadline.remaining(1000.0) == 120.0 * BEHIND
        self.permits.append(permit)
        return Answer(item, self.error, Timings())


def worker(pipeline: Failing) -> ImageWorker:
    admission = Admission(Limits(images=2, bytes=100, arriving=100), clock=lambda: 1000.0)
    nothing: Any = None
    return ImageWorker(cast(Pipeline, pipeline), admission, nothing, Settings(max_deadline=120.0))


def tried(works: ImageWorker, pipeline: Failing) -> int:
    """Return the number of tries of one image."""
    before = len(pipeline.permits)
    inputs = Inputs(cast(Any, None), 100)
    asyncio.run(works._persistently("me", Work(Classify()), 0, LINE, inputs))
    return len(pipeline.permits) - before


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between tries, in seconds; the test does not wait for them."""
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            slept.append(seconds)
        else:  # servers of earlier tests may still run
            await real(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


def test_an_image_whose_failure_may_pass_is_tried_again_after_growing_pauses(
    pauses: list[float],
) -> None:
    pipeline = Failing(OriginBusy("no connection", retry_after=0.0))
    assert tried(worker(pipeline), pipeline) == TRIES
    assert pauses[0] <= pauses[1] <= pauses[2] <= 4.0
    pipeline.error = Unavailable("the worker restarts")
    assert tried(worker(pipeline), pipeline) == TRIES
    pipeline.error = Undecodable("damaged")
    assert tried(worker(pipeline), pipeline) == 1


def test_an_origin_may_ask_for_a_bounded_pause(pauses: list[float]) -> None:
    for asked in (20.0, 1e9):
        pipeline = Failing(OriginBusy("busy", retry_after=asked))
        tried(worker(pipeline), pipeline)
    assert min(pauses[: TRIES - 1]) >= 20.0
    assert max(pauses) <= LONGEST_ASKED
