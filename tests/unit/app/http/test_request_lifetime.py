import asyncio
import time

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.http.request_lifetime import before, deadline_of, until_disconnect
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, DeadlineExceeded, InvalidParameter
from models.settings import Settings


def request(headers: dict[str, str] | None = None, gone: asyncio.Event | None = None) -> Request:
    async def receive() -> Message:
        assert gone is not None
        await gone.wait()
        return {"type": "http.disconnect"}

    raw = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    return Request({"type": "http", "headers": raw}, receive)


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "soon", "", "١", "9" * 400, "9" * 5000])
def test_a_deadline_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        deadline_of(request({"X-Deadline-Ms": text}), Settings())


def test_the_client_s_deadline_is_capped_by_the_server() -> None:
    now = time.monotonic()
    settings = Settings(max_deadline=10)
    assert deadline_of(request({"X-Deadline-Ms": "250"}), settings).remaining(now) < 1
    assert deadline_of(request({"X-Deadline-Ms": "999999999"}), settings).remaining(now) < 11


def test_work_is_cancelled_when_the_client_leaves() -> None:
    async def scenario() -> None:
        gone, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            gone.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(Cancelled):
            await until_disconnect(request(gone=gone), work())
        assert ended.is_set()

    asyncio.run(scenario())


def test_an_error_of_the_work_reaches_its_caller() -> None:
    async def scenario() -> None:
        async def work() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            await until_disconnect(request(gone=asyncio.Event()), work())

    asyncio.run(scenario())


def test_work_past_its_deadline_is_a_deadline_error() -> None:
    async def scenario() -> None:
        with pytest.raises(DeadlineExceeded):
            await before(Deadline(0.0), asyncio.Event().wait())

    asyncio.run(scenario())
