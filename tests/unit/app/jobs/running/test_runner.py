"""One process gives back every chunk that it has claimed, so that its job can end."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.files import MANIFEST, DataFolder
from app.jobs.inputs import Inputs
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.running.runner import Runner
from app.jobs.running.work import ImageWorker, Work
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.store.values import Claim, Job, State
from models.settings import Settings
from workers.operations import Classify

RETENTION = 100.0


class SlowClaims(ChunkRows):
    """Chunks whose claims, except the first, wait until `answers` is set, as at a busy database."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self.first, self.answers = True, asyncio.Event()

    async def claim(self, job: str, owner: str, limit: int = 1) -> list[Claim]:
        found = await super().claim(job, owner, limit)
        if not self.first:
            await self.answers.wait()
        self.first = False
        return found


class Endless(ImageWorker):
    """Work on images that never ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def record(self, *_: Any, **_named: Any) -> tuple[bytes, bool]:
        self.begun.set()
        await asyncio.sleep(1000)
        return b"", False


Scenario = Callable[[Runner, JobRows, SlowClaims], Awaitable[None]]


def with_a_job(tmp_path: Path, scenario: Scenario) -> None:
    """Run a scenario with a runner that works on the job `1` of 40 chunks."""

    async def run() -> None:
        folder, engine = DataFolder(tmp_path), await opened(None, tmp_path)
        folder.make()
        rows, chunks, owner, worker = JobRows(engine), SlowClaims(engine), Owner(engine), Endless()
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
        running = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(20):
                await worker.begun.wait()
                await scenario(runner, rows, chunks)
        finally:
            running.cancel()
            await asyncio.wait([running])
            await engine.dispose()

    asyncio.run(run())


def test_a_job_that_is_cancelled_while_chunks_are_being_claimed_ends(tmp_path: Path) -> None:
    """The runner cancels its work again at each look, so also while it waits for the claim."""

    async def scenario(runner: Runner, rows: JobRows, chunks: SlowClaims) -> None:
        await rows.cancel("1", RETENTION)
        for _look in range(3):
            runner.wake()
            await asyncio.sleep(0.2)
        chunks.answers.set()
        while (await rows.states(["1"]))["1"] is not State.CANCELLED:
            runner.wake()
            await asyncio.sleep(0.1)

    with_a_job(tmp_path, scenario)
