"""An image with which its process ends each time: the job ends all the same."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from app.jobs.files import MANIFEST, DataFolder
from app.jobs.inputs import Inputs
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.results import OpenResults
from app.jobs.runner import Runner, Suspects
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.store.values import Job, State
from app.jobs.work import ImageWorker, Work
from models.settings import Settings
from tests.fakes import GUARD

KILLER = 3
TOTAL = 8
MOST_STARTS = 8
ID = "1"


class Deadly:
    """Makes the records of items; one of them ends the process, as a defect in a library would."""

    async def record(
        self, _job: Job, _work: Work, index: int, _given: StoredLine, _inputs: Inputs
    ) -> tuple[bytes, bool]:
        await asyncio.sleep(0.01)
        if index == KILLER:
            os.kill(os.getpid(), signal.SIGKILL)
        return msgspec.json.encode({"index": index, "status": "ok"}) + b"\n", False

    async def check(self, _job: Job) -> None:
        """Do nothing: the job has no destination."""

    async def settle(self, _job: Job) -> None:
        """Do nothing: the job has no destination."""


async def worked(root: Path) -> None:
    """Work on the jobs of a data folder until they have ended."""
    engine = await opened(None, root)
    jobs, chunks, owner = JobRows(engine), ChunkRows(engine), Owner(engine)
    await owner.enter()
    await chunks.release_abandoned()
    settings = Settings()
    runner = Runner(
        jobs,
        chunks,
        owner,
        DataFolder(root),
        cast(ImageWorker, Deadly()),
        lambda folder: Inputs(folder, settings, asyncio.Semaphore(1)),
        lambda _operation, _options: cast(Work, None),
        4,
        100.0,
        lambda: False,
        lambda _status: None,
    )
    running = asyncio.create_task(runner.run())
    while (await jobs.by_state()).get(State.SUCCEEDED) != 1:  # noqa: ASYNC110 (database)
        await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await engine.dispose()


async def added(root: Path) -> None:
    """Add a job of one chunk."""
    folder = DataFolder(root)
    folder.make()
    writer = ManifestWriter(folder.add(ID) / MANIFEST, TOTAL, 1000)
    for number in range(TOTAL):
        writer.add(StoredLine(id=f"n{number}", url=f"https://example.org/{number}"))
    writer.finish()
    engine = await opened(None, root)
    await JobRows(engine).add(
        Job(ID, "me", State.QUEUED, "classify", {}, TOTAL, 0, 0, 0, 1000.0), writer.spans
    )
    await engine.dispose()


async def records(root: Path) -> list[Any]:
    """Return the records that count."""
    engine = await opened(None, root)
    job = await JobRows(engine).find(ID)
    assert job is not None
    async with aclosing(OpenResults(job, DataFolder(root), 0, None)) as found:
        assert await found.open(ChunkRows(engine))
        pieces = [piece async for piece in found.read()]
    await engine.dispose()
    return [msgspec.json.decode(each) for each in b"".join(pieces).splitlines()]


def test_a_job_ends_although_images_of_it_kill_their_process(tmp_path: Path) -> None:
    asyncio.run(added(tmp_path))
    command = [sys.executable, "-m", "tests.unit.app.jobs.test_suspects", str(tmp_path)]
    codes = [-signal.SIGKILL]
    while codes[-1] == -signal.SIGKILL and len(codes) <= MOST_STARTS:
        codes.append(subprocess.run(command, timeout=60, check=False).returncode)
    assert codes[-1] == 0
    found = asyncio.run(records(tmp_path))
    assert sorted(each["index"] for each in found) == [*range(TOTAL)]
    failed = {each["index"]: each for each in found if each["status"] == "error"}
    assert {*failed} == {KILLER}
    assert failed[KILLER]["id"] == "n3"
    assert failed[KILLER]["error"]["code"] == "quarantined"


def test_an_item_that_was_cancelled_or_failed_is_no_suspect(tmp_path: Path) -> None:
    async def work(suspects: Suspects) -> None:
        async with suspects.under_way(7):
            await asyncio.sleep(60)

    async def cancelled() -> None:
        for _ in range(3):
            task = asyncio.create_task(work(Suspects(tmp_path / "suspects")))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancelled())
    suspects = Suspects(tmp_path / "suspects")
    suspects.read()
    assert not suspects.blames(7)


def test_an_item_that_was_cancelled_while_it_was_noted_is_no_suspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspects, add = Suspects(tmp_path / "suspects"), Suspects._add
    begun, released = threading.Event(), threading.Event()

    def slow(self: Suspects, text: str) -> None:
        if text.startswith("+"):
            begun.set()
            released.wait(GUARD)
        add(self, text)

    monkeypatch.setattr(Suspects, "_add", slow)

    async def work() -> None:
        async with suspects.under_way(7):
            pytest.fail("it was cancelled before")

    async def cancelled() -> None:
        task = asyncio.create_task(work())
        await asyncio.to_thread(begun.wait, GUARD)
        task.cancel()
        await asyncio.wait([task])
        released.set()

    asyncio.run(cancelled())  # it waits for the thread
    assert sorted((tmp_path / "suspects").read_text().split()) == ["+7", "-7"]


def test_an_unfinished_line_of_the_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "suspects").write_text("+7\n-7\n+8\n+8\n+")
    suspects = Suspects(tmp_path / "suspects")
    suspects.read()
    assert suspects.blames(8)
    assert not suspects.blames(7)


if __name__ == "__main__":
    asyncio.run(worked(Path(sys.argv[1])))
