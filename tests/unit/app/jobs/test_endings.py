"""The endings of jobs: those of one client wait for no receiver and no file of another one."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from app.jobs import endings as ending
from app.jobs.endings import Endings
from app.jobs.store import (
    DESTINATION,
    DONE,
    FAILED,
    TO_DO,
    WEBHOOK,
    Ending,
    Job,
    JobStore,
    State,
)
from app.jobs.webhooks import Try, WebhookSender
from app.storage.storage import Storage
from models.settings import Settings
from tests.fakes import GUARD
from tests.job_store import SPANS, claimed, job, stored, stores
from tests.worker_fixture import wait_until


class Sender:
    """Delivers messages to `quick` at once, and the others when they are `released`."""

    def __init__(self) -> None:
        self.begun, self.body = 0, ""
        self.released, self.delivered = asyncio.Semaphore(0), asyncio.Event()

    async def send(self, url: str, _id: str, body: str, _client: str) -> Try:
        self.begun, self.body = self.begun + 1, body
        if url == "quick":
            self.delivered.set()
            return Try(DONE, "status 204")
        await self.released.acquire()
        return Try(TO_DO, "no answer")


async def results(_job: Job) -> AsyncGenerator[bytes, None]:
    yield b"{}\n"


@asynccontextmanager
async def endings_of(root: Path) -> AsyncIterator[tuple[JobStore, Sender]]:
    """Let a process work on endings."""
    sender = Sender()
    storage = Storage.from_settings(Settings(storage_allow_write=((root / "out").as_uri(),)))
    with stores(None, root) as store:
        endings = Endings(store.one, results, storage, cast(WebhookSender, sender))
        working = asyncio.create_task(endings.run())
        try:
            async with asyncio.timeout(GUARD):
                yield store.one, sender
        finally:
            working.cancel()
            await asyncio.wait([working])
            storage.close()


async def add(
    store: JobStore, id_: str, client: str, state: State = State.SUCCEEDED, **targets: str
) -> None:
    endings = [Ending(id_, kind, to) for kind, to in targets.items()]
    made = job(id_, client, total=1, done=1, state=state, finished=1001.0)
    await store.add(made, [], endings)


async def written(store: JobStore) -> Ending:
    """Return the first try of the destination of job 1, when it has ended."""
    while True:
        found = (await store.endings_of(["1"]))["1"][DESTINATION]
        if found.reason is not None:
            return found
        await asyncio.sleep(0.01)


async def test_receivers_that_give_no_answer_hold_up_no_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "AT_ONCE", 3)

    async with endings_of(tmp_path) as (store, sender):
        for number in range(9):
            await add(store, f"{number}", "one", webhook="slow")
        await add(store, "yours", "other", webhook="quick")
        await wait_until(lambda: sender.begun == 3)
        sender.released.release()
        await sender.delivered.wait()


async def test_a_job_that_ends_by_max_failures_calls_its_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "LOOK", 0.01)

    async with endings_of(tmp_path) as (store, sender):
        await store.add(job(max_failures=2), SPANS, [Ending("1", WEBHOOK, "quick")])
        await store.commit(stored(await claimed(store), failed=3))
        await sender.delivered.wait()
    sent = json.loads(sender.body)
    assert sent["type"] == "job.failed"
    assert sent["data"]["items"] == {"total": 30, "done": 10, "succeeded": 7, "failed": 3}


@pytest.mark.parametrize("state", [State.FAILED, State.SUCCEEDED])
async def test_a_webhook_that_tells_of_a_full_destination_does_not_wait_for_room_there(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with endings_of(tmp_path) as (store, sender):
        (tmp_path / "out").mkdir()
        target = (tmp_path / "out" / "1").as_uri()
        monkeypatch.setattr(os, "fsync", full)
        await add(store, "1", "me", state, destination=target, webhook="quick")
        found = await written(store)
        assert found.state == (FAILED if state is State.FAILED else TO_DO)
        assert "full" in (found.reason or "")
        if state is State.FAILED:
            await sender.delivered.wait()
        assert sender.delivered.is_set() is (state is State.FAILED)


@pytest.mark.parametrize("taken", ["out", "out/1"])
async def test_a_destination_that_is_a_file_ends_at_the_first_try(
    tmp_path: Path, taken: str
) -> None:
    """The webhook waits for it, and would else come after three days."""
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("a file")

    async with endings_of(tmp_path) as (store, sender):
        target = (tmp_path / "out" / "1").as_uri()
        await add(store, "1", "me", destination=target, webhook="quick")
        await sender.delivered.wait()
        found = await written(store)
        assert found.state == FAILED
        assert "no folder" in (found.reason or "")
