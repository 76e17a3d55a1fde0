"""One process gives back every chunk that it has claimed, so that its job can end."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs import runner as running
from app.jobs.files import MANIFEST, DataFolder
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.runner import Runner
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import Owner, opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Claim, Job, State, Stored
from app.jobs.work import ImageWorker, Inputs, Work
from models.settings import Settings
from workers.operations import Classify

RETENTION = 100.0


class SlowClaims(ChunkRows):
    """Chunks whose claims, except the first, wait until `answers` is set, as at a busy database."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self.first, self.answers = True, asyncio.Event()

    async def claim(self, job: str, owner: str) -> Claim | None:
        found = await super().claim(job, owner)
        if not self.first:
            await self.answers.wait()
        self.first = False
        return found


class UnansweredClaims(ChunkRows):
    """Chunks whose claims are made, and whose answers are lost until `answers` is set."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self.answers, self.lost = asyncio.Event(), asyncio.Event()

    async def claim(self, job: str, owner: str) -> Claim | None:
        if self.answers.is_set():
            return await super().claim(job, owner)
        while await super().claim(job, owner) is not None:
            pass
        self.lost.set()
        raise OperationalError("COMMIT", {}, ConnectionResetError("the connection was lost"))


class Endless(ImageWorker):
    """Work on images that never ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
        self.begun.set()
        await asyncio.sleep(1000)
        return b"", False


Rows = TypeVar("Rows", bound=ChunkRows)


def with_a_job(
    tmp_path: Path,
    kind: Callable[[AsyncEngine], Rows],
    scenario: Callable[[Runner, JobRows, Rows, Endless], Awaitable[None]],
    works: type[Endless] | None = None,
) -> None:
    """Run a scenario with a runner that works on the job `1` of 40 chunks."""

    async def run() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        folder.make()
        rows, chunks, owner = JobRows(engine), kind(engine), Owner(engine)
        worker = (works or Endless)()
        await owner.enter()
        writer = ManifestWriter(folder.add("1") / MANIFEST, 1000, 1000, chunk=1)
        for _ in range(40):
            writer.add(StoredLine(url="https://example.org/photo.jpg"))
        writer.finish()
        new = Job("1", "me", State.QUEUED, "classify", {}, writer.total, 0, 0, 0, 1000.0)
        await rows.add(new, writer.spans)
        inputs = partial(Inputs, settings=Settings(), large=asyncio.Semaphore(1))
        parts = rows, chunks, owner, folder, worker, inputs, lambda *_: Work(Classify())
        runner = Runner(*parts, 100, RETENTION, lambda: False, lambda _: None)
        work = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(20):
                await scenario(runner, rows, chunks, worker)
        finally:
            work.cancel()
            ended, _ = await asyncio.wait([work], timeout=20)
            await engine.dispose()
        assert ended

    asyncio.run(run())


def test_a_job_that_is_cancelled_while_chunks_are_being_claimed_ends(tmp_path: Path) -> None:
    """The runner cancels its work again at each look, so also while it waits for the claim."""

    async def scenario(runner: Runner, rows: JobRows, chunks: SlowClaims, worker: Endless) -> None:
        await worker.begun.wait()
        await rows.cancel("1", RETENTION)
        for _look in range(3):
            runner.wake()
            await asyncio.sleep(0.2)
        chunks.answers.set()
        while (await rows.states(["1"]))["1"] is not State.CANCELLED:
            runner.wake()
            await asyncio.sleep(0.1)

    with_a_job(tmp_path, SlowClaims, scenario)


def test_chunks_whose_claim_was_made_but_not_answered_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PAUSE", 0.1)

    async def scenario(
        _runner: Runner, _rows: JobRows, chunks: UnansweredClaims, worker: Endless
    ) -> None:
        await chunks.lost.wait()
        chunks.answers.set()
        await worker.begun.wait()

    with_a_job(tmp_path, UnansweredClaims, scenario)


def test_jobs_of_a_client_whose_share_is_full_wait(tmp_path: Path) -> None:
    async def scenario(runner: Runner, rows: JobRows, _chunks: ChunkRows, worker: Endless) -> None:
        runner.full_clients = frozenset({"me"})
        runner.wake()
        await asyncio.sleep(0.3)
        assert (await rows.states(["1"]))["1"] is State.QUEUED
        runner.full_clients = frozenset({"you"})
        runner.wake()
        await worker.begun.wait()

    with_a_job(tmp_path, ChunkRows, scenario)


class Slow(ImageWorker):
    """Work on images that takes a while; `begun` is set for the client of each."""

    def __init__(self) -> None:
        self.begun = defaultdict[str, asyncio.Event](asyncio.Event)

    async def record(self, job: Job, *_: Any, **_named: Any) -> tuple[bytes, bool]:
        self.begun[job.client].set()
        await asyncio.sleep(0.05)
        return b"{}\n", False


def test_many_long_jobs_of_one_client_keep_no_other_client_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TURN", 0.5)

    async def run() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        folder.make()
        rows, owner, worker = JobRows(engine), Owner(engine), Slow()
        await owner.enter()

        async def add(id_: str, client: str) -> None:
            writer = ManifestWriter(folder.add(id_) / MANIFEST, 5000, 1000)
            for _ in range(2000):
                writer.add(StoredLine(url="https://example.org/photo.jpg"))
            writer.finish()
            new = Job(id_, client, State.QUEUED, "classify", {}, writer.total, 0, 0, 0, 1000.0)
            await rows.add(new, writer.spans)

        for number in range(10):
            await add(f"{number}", "me")
        inputs = partial(Inputs, settings=Settings(), large=asyncio.Semaphore(1))
        parts = rows, ChunkRows(engine), owner, folder, worker, inputs
        work = lambda *_: Work(Classify())  # noqa: E731
        runner = Runner(*parts, work, 10, RETENTION, lambda: False, lambda _: None)
        working = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(20):
                await worker.begun["me"].wait()
                await add("yours", "you")
                await worker.begun["you"].wait()
        finally:
            working.cancel()
            await asyncio.wait([working])
            await engine.dispose()

    asyncio.run(run())


def test_images_of_a_chunk_are_on_the_disk_before_their_records_count(tmp_path: Path) -> None:
    """After a power failure a record would else name images that are not there."""
    steps: list[str] = []

    class Noted(ChunkRows):
        async def commit(self, stored: Stored, owner: str, retention: float) -> bool:
            steps.append("counted")
            return await super().commit(stored, owner, retention)

    class Quick(Endless):
        async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
            return b"{}\n", False

        async def settle(self, _job: Job) -> None:
            steps.append("settled")

    async def scenario(runner: Runner, rows: JobRows, _chunks: Noted, _worker: Endless) -> None:
        while (await rows.states(["1"]))["1"] is not State.SUCCEEDED:
            runner.wake()
            await asyncio.sleep(0.02)

    with_a_job(tmp_path, Noted, scenario, Quick)
    assert steps.count("counted") == steps.count("settled") == 40
    for number in range(len(steps)):
        assert steps[:number].count("counted") <= steps[:number].count("settled")


def test_a_chunk_that_ended_with_its_process_each_time_becomes_errors(tmp_path: Path) -> None:
    """As of an image that makes a library crash: without this its job would never end."""

    class Tried(ChunkRows):
        async def claim(self, job: str, owner: str) -> Claim | None:
            found = await super().claim(job, owner)
            return found and replace(found, attempts=running.ATTEMPTS + (found.number == 3))

    class Quick(Endless):
        async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
            return b"{}\n", False

    async def scenario(runner: Runner, rows: JobRows, _chunks: Tried, _worker: Endless) -> None:
        while (found := await rows.find("1")) and found.state is not State.SUCCEEDED:
            runner.wake()
            await asyncio.sleep(0.02)
        assert found is not None
        assert (found.done, found.failed) == (40, 1)

    with_a_job(tmp_path, Tried, scenario, Quick)
    (results,) = (tmp_path / "jobs" / "1").glob("results-*.jsonl")
    assert b'"quarantined"' in results.read_bytes()


def test_a_job_that_is_cancelled_while_it_commits_keeps_what_counts(tmp_path: Path) -> None:
    class SlowCommits(ChunkRows):
        def __init__(self, engine: AsyncEngine) -> None:
            super().__init__(engine)
            self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

        async def commit(self, stored: Stored, owner: str, retention: float) -> bool:
            self.begun.set()
            await self.goes_on.wait()
            return await super().commit(stored, owner, retention)

    class Quick(Endless):
        async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
            return b"{}\n", False

    async def scenario(runner: Runner, rows: JobRows, chunks: SlowCommits, _: Endless) -> None:
        await chunks.begun.wait()
        await rows.cancel("1", RETENTION)
        runner.wake()
        chunks.goes_on.set()
        while (found := await rows.find("1")) and found.state is not State.CANCELLED:
            runner.wake()
            await asyncio.sleep(0.02)
        assert found is not None
        assert sum(each.count for each in await chunks.results("1", 0, 100)) == found.done

    with_a_job(tmp_path, SlowCommits, scenario, Quick)


def test_a_runner_ends_although_the_database_takes_no_commit(tmp_path: Path) -> None:
    class NoCommits(ChunkRows):
        def __init__(self, engine: AsyncEngine) -> None:
            super().__init__(engine)
            self.tried = asyncio.Event()

        async def commit(self, *_: Any) -> bool:
            self.tried.set()
            raise OperationalError("COMMIT", {}, ConnectionResetError("the connection was lost"))

    class Quick(Endless):
        async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
            return b"{}\n", False

    async def scenario(_: Runner, _rows: JobRows, chunks: NoCommits, _worker: Endless) -> None:
        await chunks.tried.wait()

    with_a_job(tmp_path, NoCommits, scenario, Quick)
