"""A job whose work cannot go on ends with a reason; one that may go on later rests."""

import asyncio
import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from app.jobs import runner as running
from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.runner import MOST_FAULTS, PAUSE, Runner
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import Owner, opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, State
from app.jobs.work import ImageOutput, ImageWorker, Inputs, Work
from app.storage.storage import Storage
from models.domain.errors import InvalidParameter, NotFound, OriginFailed, StorageFull
from models.settings import Settings
from tests.fakes import FakeClock
from workers.operations import Classify

RETENTION = 100.0
JOB = Job("1", "me", State.QUEUED, "classify", {}, 8, 0, 0, 0, 1000.0)


class Reader(ImageWorker):
    """Reads images, writes nothing, and calls `on_record` with the folder of results."""

    def __init__(self, storage: Storage, on_record: Callable[[], object]) -> None:
        self._output = ImageOutput(storage)
        self._on_record = on_record
        self.records = 0

    async def record(
        self, _job: Job, _work: Work, _index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        self.records += 1
        await inputs.content(given)
        self._on_record()
        return b"{}\n", False


def ended(
    root: Path,
    job: Job,
    line: StoredLine,
    before: Callable[[Path], object] = lambda _folder: None,
    on_record: Callable[[], object] = lambda: None,
    kind: type[Reader] = Reader,
    chunk: int = 1000,
) -> tuple[Job, Reader]:
    """Work on a job of equal items until it has ended; `before` gets its folder."""

    async def main() -> tuple[Job, Reader]:
        folder, engine = DataFolder(root / "data"), await opened(None, made(root / "data"))
        folder.make()
        rows, owner = JobRows(engine), Owner(engine)
        await owner.enter()
        writer = ManifestWriter(folder.add(job.id) / MANIFEST, 1000, 1000, chunk=chunk)
        for _ in range(job.total):
            writer.add(line)
        writer.finish()
        await rows.add(job, writer.spans)
        before(folder.of(job.id))
        storage = Storage.from_settings(Settings(storage_allow_write=(root.as_uri() + "/out",)))
        worker = kind(storage, on_record)
        inputs = partial(Inputs, settings=Settings(), large=asyncio.Semaphore(1))
        parts = rows, ChunkRows(engine), owner, folder, worker, inputs, lambda *_: Work(Classify())
        runner = Runner(*parts, 4, RETENTION, lambda: False, lambda _: None)
        working = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(60):
                while True:
                    found = await rows.find(job.id)
                    assert found is not None
                    if found.finished is not None:
                        return found, worker
                    await asyncio.sleep(0.02)
        finally:
            working.cancel()
            await asyncio.wait([working])
            storage.close()
            await engine.dispose()

    return asyncio.run(main())


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


MEMBER = StoredLine(path="photo.jpg", member=(0, 10, 0))


def test_a_job_whose_archive_is_missing_fails_with_a_reason_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job rests before that: the disk may be mounted a little later, or on another host."""
    monkeypatch.setattr(running, "PAUSE", 0.01)
    monkeypatch.setattr(running, "MOST_FAULTS", 3)
    found, _ = ended(tmp_path, JOB, MEMBER)
    assert found.state is State.FAILED
    assert found.problem is not None
    assert found.problem["code"] == "not_found"
    assert "the archive of the job is not in the data folder any more" in found.problem["detail"]


def test_a_job_whose_archive_cannot_be_read_fails_with_a_reason(tmp_path: Path) -> None:
    found, _ = ended(tmp_path, JOB, MEMBER, lambda folder: (folder / ARCHIVE).mkdir())
    assert found.state is State.FAILED
    assert found.problem is not None
    assert found.problem["detail"] == "the archive of the job cannot be read: Is a directory"


def test_a_job_whose_manifest_is_damaged_fails_with_a_reason(tmp_path: Path) -> None:
    def cut(folder: Path) -> None:
        whole = (folder / MANIFEST).read_bytes()
        (folder / MANIFEST).write_bytes(whole[: len(whole) // 2 + 3])

    found, _ = ended(tmp_path, JOB, StoredLine(url="https://a.example/1.jpg"), cut)
    assert found.state is State.FAILED
    assert found.problem is not None
    assert "the manifest of the job is damaged" in found.problem["detail"]


def test_a_job_whose_manifest_lost_whole_lines_fails_too(tmp_path: Path) -> None:
    def cut(folder: Path) -> None:
        lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
        (folder / MANIFEST).write_bytes(b"".join(lines[:5]))

    found, _ = ended(tmp_path, JOB, StoredLine(url="https://a.example/1.jpg"), cut)
    assert found.state is State.FAILED


@pytest.mark.parametrize("taken", ["out", "out/1", "out/1/images"])
def test_a_job_whose_destination_became_a_file_fails_before_it_computes_anything(
    tmp_path: Path, taken: str
) -> None:
    target = (tmp_path / "out" / "1").as_uri()
    path = tmp_path / taken
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file")
    job = replace(JOB, destination=target)
    found, worker = ended(tmp_path, job, StoredLine(url="https://a.example/1.jpg"))
    assert found.state is State.FAILED
    assert found.problem is not None
    assert "no folder" in found.problem["detail"]
    assert worker.records == 0


def test_a_job_whose_destination_becomes_a_file_meanwhile_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PAUSE", 0.05)
    (tmp_path / "out" / "1").mkdir(parents=True)

    def replaced() -> None:
        if (tmp_path / "out" / "1").is_dir():
            shutil.rmtree(tmp_path / "out" / "1")
            (tmp_path / "out" / "1").write_text("a file")

    job = replace(JOB, destination=(tmp_path / "out" / "1").as_uri())
    line = StoredLine(url="https://a.example/1.jpg")
    found, worker = ended(tmp_path, job, line, on_record=replaced)
    assert found.state is State.FAILED
    assert found.problem is not None
    assert "1 is no folder" in found.problem["detail"]
    assert worker.records == JOB.total, "it was computed once"


class FullDestination(Reader):
    """Writes the images of some items, until the disk of the destination is full."""

    async def record(
        self, job: Job, work: Work, index: int, given: StoredLine, inputs: Inputs
    ) -> tuple[bytes, bool]:
        if index >= JOB.total // 2:
            self.records += 1
            raise StorageFull("file:///out: its disk, or the quota on it, is full")
        return await super().record(job, work, index, given, inputs)


def test_a_job_whose_destination_is_full_keeps_its_records_waits_and_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PAUSE", 0.01)
    monkeypatch.setattr(running, "MOST_FAULTS", 3)
    line = StoredLine(url="https://a.example/1.jpg")
    found, worker = ended(tmp_path, JOB, line, kind=FullDestination, chunk=1)
    assert found.state is State.FAILED
    assert found.problem is not None
    assert (found.problem["code"], found.failed) == ("storage_full", 0)
    assert found.done == JOB.total // 2
    assert worker.records < 4 * JOB.total, "each try ends with the first images that find no room"


class FakeRows:
    """Notes jobs that failed, and why jobs wait."""

    def __init__(self) -> None:
        self.failed: list[dict[str, Any]] = []
        self.waits: list[dict[str, Any]] = []

    async def note(self, _id: str, problem: dict[str, Any]) -> None:
        self.waits.append(problem)

    async def fail(self, _id: str, problem: dict[str, Any], _retention: float) -> None:
        self.failed.append(problem)


def runner(rows: FakeRows, clock: FakeClock) -> Runner:
    """Return a runner of which only the decisions about faults are used."""
    nothing: Any = None
    parts = cast(JobRows, rows), nothing, nothing, nothing, nothing, nothing, nothing
    return Runner(*parts, 1, RETENTION, lambda: False, lambda _: None, clock)


def taken(*errors: Exception, n: int, done: int = 0) -> tuple[list[dict[str, Any]], bool]:
    """Return what failed after `n` rests that the same errors ended, and whether the job rests."""
    rows, clock = FakeRows(), FakeClock(1000.0)
    known = runner(rows, clock)

    async def main() -> None:
        for number in range(n):
            group = ExceptionGroup("", [ExceptionGroup("", [*errors])])
            await known._take_fault(replace(JOB, done=done * number), group)
            assert rows.failed or not known._in_turn([JOB])
            clock.advance(10_000)

    asyncio.run(main())
    clock.advance(-10_000)
    return rows.failed, not known._in_turn([JOB])


def test_an_error_that_lasts_is_found_among_those_of_a_group() -> None:
    (failed,), rests = taken(OSError(errno.EIO, "disk"), InvalidParameter("wrong"), n=1)
    assert failed["detail"] == "wrong"
    assert not rests


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
def test_a_job_that_makes_no_progress_fails_in_the_end(error: Exception) -> None:
    assert taken(error, n=MOST_FAULTS - 1)[0] == []
    (failed,), _ = taken(error, n=MOST_FAULTS)
    assert failed["status"] >= 404
    assert taken(error, n=2 * MOST_FAULTS, done=1)[0] == [], "it makes progress"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OperationalError("COMMIT", {}, ConnectionResetError("lost")),
    ],
)
def test_a_job_waits_without_end_for_room_and_for_the_database(error: Exception) -> None:
    assert taken(error, n=3 * MOST_FAULTS)[0] == []


def test_a_job_that_rests_shows_why_and_rests_for_longer_each_time() -> None:
    rows, clock = FakeRows(), FakeClock(1000.0)
    known = runner(rows, clock)

    async def main() -> None:
        for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
            await known._take_fault(JOB, StorageFull("file:///out: its disk is full"))
            clock.advance(pause - 0.1)
            assert known._in_turn([JOB]) == []
            clock.advance(0.2)
            assert known._in_turn([JOB]) == [JOB]

    asyncio.run(main())
    assert rows.failed == []
    assert {each["detail"] for each in rows.waits} == {"file:///out: its disk is full"}


def test_jobs_take_turns_and_those_of_one_client_come_one_after_the_other() -> None:
    known = runner(FakeRows(), clock := FakeClock(1000.0))
    jobs = [replace(JOB, id=id_, client=id_[0]) for id_ in ("a1", "a2", "a3", "b1")]
    assert [each.id for each in known._in_turn(jobs)] == ["a1", "b1", "a2", "a3"]
    known._worked["a1"] = clock()
    assert [each.id for each in known._in_turn(jobs)] == ["b1", "a1", "a2", "a3"]
