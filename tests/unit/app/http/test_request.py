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


def test_work_past_its_deadline_is_a_deadline_error() -> None:
    async def scenario() -> None:
        with pytest.raises(DeadlineExceeded):
            await before(Deadline(0.0), asyncio.Event().wait())

    asyncio.run(scenario())


def test_the_function_is_called_once_when_the_client_leaves() -> None:
    departure, called = Departure(), list[str]()
    departure.watch(lambda: called.append("left"))
    assert not called
    departure.happen()
    departure.happen()
    assert called == ["left"]


def test_it_is_not_called_after_the_watch_was_ended() -> None:
    departure, called = Departure(), list[str]()
    departure.watch(lambda: called.append("left"))()
    departure.happen()
    assert not called


def test_a_client_that_has_left_already_is_told_of_in_the_next_turn() -> None:
    async def scenario() -> None:
        departure, called = Departure(), list[str]()
        departure.happen()
        departure.watch(lambda: called.append("left"))
        assert not called  # the caller has not begun what this ends
        await asyncio.sleep(0)
        assert called == ["left"]
        departure.watch(lambda: called.append("again"))()
        await asyncio.sleep(0)
        assert called == ["left"]

    asyncio.run(scenario())


def test_a_request_has_the_departure_of_its_server() -> None:
    departure = Departure()
    assert departure_of({DEPARTURE: departure}) is departure
    assert departure_of({}) is not departure


class Work:
    """Work that goes on until it is cancelled, and then ends after one more turn."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = False

    async def go_on(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended = True


def test_work_ends_when_the_client_leaves() -> None:
    async def scenario() -> None:
        departure, work = Departure(), Work()
        doing = asyncio.create_task(unless_left(departure, work.go_on()))
        await work.begun.wait()
        departure.happen()
        with pytest.raises(Cancelled):
            await doing
        assert work.ended

    asyncio.run(scenario())


def test_work_that_is_cancelled_by_others_ends_as_cancelled() -> None:
    async def scenario() -> None:
        departure, work = Departure(), Work()
        doing = asyncio.create_task(unless_left(departure, work.go_on()))
        await work.begun.wait()
        doing.cancel()
        departure.happen()
        with pytest.raises(asyncio.CancelledError):
            await doing
        assert work.ended

    asyncio.run(scenario())


def test_work_of_a_client_that_stays_has_its_result() -> None:
    async def result() -> int:
        return 5

    departure = Departure()
    assert asyncio.run(unless_left(departure, result())) == 5
    departure.happen()  # it is watched no more
