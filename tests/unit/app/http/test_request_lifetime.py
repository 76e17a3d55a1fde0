import asyncio
import time

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.http.request import before, deadline_of, disconnected
from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, InvalidParameter
from models.settings import Settings


def request(headers: dict[str, str]) -> Request:
    raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
    return Request({"type": "http", "headers": raw})


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "soon", "", "١", "9" * 400, "9" * 5000])
def test_a_deadline_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        deadline_of(request({"X-Deadline-Ms": text}).scope, Settings())


def test_the_client_s_deadline_is_capped_by_the_server() -> None:
    settings = Settings(max_deadline=10)
    for text, seconds in (("250", 0.25), ("999999999", 10)):
        before = time.monotonic()
        deadline = deadline_of(request({"X-Deadline-Ms": text}).scope, settings)
        after = time.monotonic()
        assert deadline.remaining(after) <= seconds <= deadline.remaining(before)


def test_work_past_its_deadline_is_a_deadline_error() -> None:
    async def scenario() -> None:
        with pytest.raises(DeadlineExceeded):
            await before(Deadline(0.0), asyncio.Event().wait())

    asyncio.run(scenario())


def test_a_client_has_left_when_the_server_says_so_and_not_when_more_of_a_body_comes() -> None:
    async def scenario() -> None:
        messages = iter(({"type": "http.request"}, {"type": "http.disconnect"}))

        async def receive() -> Message:
            return next(messages)

        await disconnected(Request({"type": "http", "headers": []}, receive))
        assert next(messages, None) is None

    asyncio.run(scenario())
