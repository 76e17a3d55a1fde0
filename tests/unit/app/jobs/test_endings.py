"""The endings of jobs: those of one client wait for no receiver and no file of another one."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from app.jobs.endings import Endings
from app.jobs.store.database import Owner, opened
from app.jobs.store.endings import DESTINATION, FAILED, OF_ONE, WAITING, Ending, EndingRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, State
from app.storage.storage import Storage
from app.webhooks import Delivery, Try, WebhookSender
from models.settings import Settings
from tests.fakes import GUARD

ENDED = Job("1", "me", State.SUCCEEDED, "classify", {}, 1, 1, 0, 5, 1000.0, finished=1001.0)


class Sender:
    """Delivers messages to `quick` at once, and none to any other receiver."""

    def __init__(self) -> None:
        self.begun = 0
        self.held = asyncio.Event()
        self.delivered = asyncio.Event()

    async def send(self, url: str, _id: str, _body: bytes, _client: str) -> Try:
        self.begun += 1
        if url == "quick":
            self.delivered.set()
            return Try(Delivery.DELIVERED, "status 204")
        if self.begun == OF_ONE:
            self.held.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def results(_job: Job) -> AsyncGenerator[bytes, None]:
    yield b"{}\n"


def with_endings(
    root: Path, scenario: Callable[[JobRows, EndingRows, Sender], Awaitable[None]]
) -> None:
    """Run a scenario while a process works on endings."""

    async def main() -> None:
        engine, sender = await opened(None, root), Sender()
        storage = Storage.from_settings(Settings(storage_allow_write=((root / "out").as_uri(),)))
        try:
            jobs, owner = JobRows(engine), Owner(engine)
            await owner.enter()
            rows = EndingRows(engine, owner.id)
            endings = Endings(rows, jobs, results, storage, cast(WebhookSender, sender))
            working = asyncio.create_task(endings.run())
            try:
                await asyncio.wait_for(scenario(jobs, rows, sender), GUARD)
            finally:
                working.cancel()
                await asyncio.wait([working])
        finally:
            storage.close()
            await engine.dispose()

    asyncio.run(main())


async def add(
    jobs: JobRows, id_: str, client: str, state: State = State.SUCCEEDED, **targets: str
) -> None:
    endings = [Ending(id_, kind, to, WAITING, 0, 0.0, None, None) for kind, to in targets.items()]
    await jobs.add(replace(ENDED, id=id_, client=client, state=state), [], endings)


def test_receivers_that_give_no_answer_hold_up_no_other_client(tmp_path: Path) -> None:
    async def scenario(jobs: JobRows, _rows: EndingRows, sender: Sender) -> None:
        for number in range(40):
            await add(jobs, f"{number}", "one", webhook="slow")
        await sender.held.wait()
        await add(jobs, "yours", "other", webhook="quick")
        await sender.delivered.wait()
        assert sender.begun == OF_ONE + 1

    with_endings(tmp_path, scenario)


@pytest.mark.parametrize("state", [State.FAILED, State.SUCCEEDED])
def test_a_webhook_that_tells_of_a_full_destination_does_not_wait_for_room_there(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario(jobs: JobRows, rows: EndingRows, sender: Sender) -> None:
        (tmp_path / "out").mkdir()
        target = (tmp_path / "out" / "1").as_uri()
        monkeypatch.setattr(os, "fsync", full)
        await add(jobs, "1", "me", state, destination=target, webhook="quick")
        if state is State.FAILED:
            await sender.delivered.wait()
        found = (await rows.of(["1"]))["1"][DESTINATION]
        while found.reason is None:
            await asyncio.sleep(0)
            found = (await rows.of(["1"]))["1"][DESTINATION]
        assert found.state == (FAILED if state is State.FAILED else WAITING)
        assert "full" in found.reason
        assert sender.delivered.is_set() is (state is State.FAILED)

    with_endings(tmp_path, scenario)


@pytest.mark.parametrize("taken", ["out", "out/1"])
def test_a_destination_that_is_a_file_ends_at_the_first_try(tmp_path: Path, taken: str) -> None:
    """The webhook waits for it, and would else come after three days."""
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("a file")

    async def scenario(jobs: JobRows, rows: EndingRows, sender: Sender) -> None:
        target = (tmp_path / "out" / "1").as_uri()
        await add(jobs, "1", "me", destination=target, webhook="quick")
        await sender.delivered.wait()
        found = (await rows.of(["1"]))["1"][DESTINATION]
        assert found.state == FAILED
        assert found.reason is not None
        assert "no folder" in found.reason

    with_endings(tmp_path, scenario)


def test_the_work_is_cancelled_also_while_an_ending_ends() -> None:
    class NoRows:
        async def claim(self, _limit: int, _held: object) -> list[Ending]:
            return []

    async def main() -> None:
        nothing = cast(JobRows, None), results, cast(Storage, None), cast(WebhookSender, Sender())
        endings = Endings(cast(EndingRows, NoRows()), *nothing)
        working = asyncio.create_task(endings.run())
        for _ in range(5):  # now it waits for an ending that ends
            await asyncio.sleep(0)
        endings._one_ended.set()
        working.cancel()
        await asyncio.wait([working], timeout=GUARD)
        assert working.cancelled()

    asyncio.run(main())
