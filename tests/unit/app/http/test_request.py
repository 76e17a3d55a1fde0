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
    unless_left,
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


def test_the_function_is_called_once_when_the_client_leaves_unless_the_watch_was_ended() -> None:
    departure, called = Departure(), list[str]()
    departure.watch(lambda: called.append("ended"))()
    departure.watch(lambda: called.append("left"))
    assert not called
    departure.happen()
    departure.happen()
    assert called == ["left"]


async def test_a_client_that_has_left_already_is_told_of_in_the_next_turn() -> None:
    departure, called = Departure(), list[str]()
    departure.happen()
    departure.watch(lambda: called.append("left"))
    assert not called  # the caller has not begun what this ends
    await asyncio.sleep(0)
    departure.watch(lambda: called.append("again"))()
    await asyncio.sleep(0)
    assert called == ["left"]


def test_a_request_has_the_departure_of_its_server() -> None:
    departure = Departure()
    assert departure_of({DEPARTURE: departure}) is departure
    assert departure_of({}) is not departure


@pytest.mark.parametrize("by_others", [False, True])
async def test_work_ends_when_the_client_leaves_or_others_cancel_it(by_others: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    departure = Departure()
    doing = asyncio.create_task(unless_left(departure, work()))
    await begun.wait()
    if by_others:
        doing.cancel()
    departure.happen()
    with pytest.raises(asyncio.CancelledError if by_others else Cancelled):
        await doing
    assert ended.is_set()


async def test_work_of_a_client_that_stays_has_its_result() -> None:
    departure = Departure()
    assert await unless_left(departure, asyncio.sleep(0, 5)) == 5
    departure.happen()  # it is watched no more
