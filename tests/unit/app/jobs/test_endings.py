"""The endings of jobs: those of one client wait for no receiver and no file of another one."""

import asyncio
import base64
import errno
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from app.fetch.fetcher import FetchLimits
from app.jobs import endings as ending
from app.jobs.endings import Endings, Try, WebhookSender, parse_secrets, signed
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
from app.storage.storage import Storage
from models.domain.errors import AddressRefused, InvalidParameter
from models.settings import Settings
from tests.fakes import GUARD
from tests.job_store import SPANS, claimed, job, stored, stores
from tests.network import Names, Wires
from tests.origin import Answer, Received, body, origin, redirect, silent, status


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "LOOK", 0.01)


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


async def test_a_job_that_ends_by_max_failures_calls_its_webhook(tmp_path: Path) -> None:
    async with endings_of(tmp_path) as (store, sender):
        await store.add(job(max_failures=2), SPANS, [Ending("1", WEBHOOK, "quick")])
        await store.commit(stored(await claimed(store)), 3)
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


SECRET = bytes(range(32))
EXAMPLE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The secret of the example in the standard's documentation."""
LIMITS = replace(
    FetchLimits.from_settings(Settings(fetch_ports="1-65535")), read_timeout=0.5, connect_timeout=5
)


def test_each_secret_signs_as_the_standards_example() -> None:
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    sent = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}'
    first, second = (signed(parse_secrets([each]), *sent) for each in (EXAMPLE, other))
    assert first == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    both = f"{first['webhook-signature']} {second['webhook-signature']}"
    assert signed(parse_secrets([EXAMPLE, other]), *sent)["webhook-signature"] == both


@pytest.mark.parametrize(
    "secret",
    [
        EXAMPLE.removeprefix("whsec_"),
        "whsec_",
        "whsec_not base64 at all, whatever it is",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
    ],
)
def test_a_wrong_secret_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 random bytes") as error:
        parse_secrets([secret])
    assert secret == "whsec_" or secret not in str(error.value)


async def sent(
    answer: Answer, addresses: tuple[str, ...] = ("8.8.8.8",)
) -> tuple[Try, list[Received]]:
    """Return the end of one try at a receiver that gives an answer, and what it received."""
    async with origin() as receiver:
        receiver.answers["/hook"] = answer
        names = Names({"hook.example": [addresses]})
        sender = WebhookSender(LIMITS, (SECRET,), names, Wires(), clock=lambda: 1234.5)
        tried = await sender.send(receiver.url("/hook", host="hook.example"), "msg_1", "{}")
        await sender.aclose()
        return tried, receiver.requests


async def test_a_message_is_sent_with_its_signature() -> None:
    tried, [request] = await sent(body(b"thanks"))
    assert tried.state == DONE
    expected = signed((SECRET,), "msg_1", 1234, "{}")
    assert expected.items() <= request.headers.items()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["content-length"] == "2"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(204), Try(DONE, "status 204")),
        (status(410), Try(FAILED, "status 410")),
        (status(500), Try(TO_DO, "status 500")),
        (status(429, Retry_After="77"), Try(TO_DO, "status 429", 77.0)),
        (redirect("/elsewhere"), Try(TO_DO, "status 302")),
        (silent(), Try(TO_DO, "no connection, or it broke (ReadTimeout)")),
    ],
)
async def test_the_status_decides_and_a_silent_receiver_is_tried_again(
    answer: Answer, expected: Try
) -> None:
    tried, requests = await sent(answer)
    assert tried == expected
    assert len(requests) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_an_address_that_is_not_public_is_never_connected_to(address: str) -> None:
    tried, requests = await sent(body(b""), ("8.8.8.8", address))
    assert tried.state == TO_DO
    assert "not public" in tried.reason
    assert requests == []


async def test_addresses_are_checked_before_a_job_is_taken() -> None:
    sender = WebhookSender(FetchLimits.from_settings(Settings()), (SECRET,))
    sender.check("https://hook.example/jobs?token=1")
    with pytest.raises(InvalidParameter, match="only http and https"):
        sender.check("ftp://hook.example/")
    with pytest.raises(AddressRefused, match="port 8080"):
        sender.check("https://hook.example:8080/")
    await sender.aclose()
    without = WebhookSender(FetchLimits.from_settings(Settings()), ())
    with pytest.raises(InvalidParameter, match="DARKROOM_WEBHOOK_SECRET"):
        without.check("https://hook.example/")
    await without.aclose()
