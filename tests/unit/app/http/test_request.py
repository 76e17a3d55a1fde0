"""The deadline of a request, and clients that leave."""

import asyncio
import time

import pytest
from starlette.requests import Request

from app.http.request import (
    DEPARTURE,
    Departure,
    before,
    deadline_of,
    departure_of,
)
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, DeadlineExceeded, InvalidParameter
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


async def test_work_past_its_deadline_is_a_deadline_error() -> None:
    with pytest.raises(DeadlineExceeded):
        await before(Deadline(0.0), asyncio.Event().wait())


async def test_nothing_begins_for_a_client_that_has_left_already() -> None:
    departure = Departure()
    departure.happen()
    with pytest.raises(Cancelled), departure:
        raise AssertionError


def test_a_request_has_the_departure_of_its_server() -> None:
    departure = Departure()
    assert departure_of({DEPARTURE: departure}) is departure
    assert departure_of({}) is not departure


@pytest.mark.parametrize("by_others", [False, True])
async def test_work_ends_when_the_client_leaves_or_others_cancel_it(by_others: bool) -> None:
    begun, ended, departure = asyncio.Event(), asyncio.Event(), Departure()

    async def work() -> None:
        with departure:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.set()

    doing = asyncio.create_task(work())
    await begun.wait()
    if by_others:
        doing.cancel()
    departure.happen()
    departure.happen()
    with pytest.raises(asyncio.CancelledError if by_others else Cancelled):
        await doing
    assert ended.is_set()


async def test_a_client_that_leaves_after_its_answer_cancels_nothing() -> None:
    departure = Departure()
    with departure:
        await asyncio.sleep(0)
    departure.happen()
    await asyncio.sleep(0)
