"""The deadline of a request, and clients that leave."""

import asyncio
import time

import pytest

from app.http.request import Departure, before, deadline_of, lane_of
from models.domain.deadline import Deadline
from models.domain.errors import Cancelled, DeadlineExceeded, InvalidParameter
from models.domain.job import Lane
from models.settings import Settings


def deadline(text: str) -> Deadline:
    scope = {"type": "http", "headers": [(b"x-deadline-ms", text.encode())]}
    return deadline_of(scope, Settings(max_deadline=10))


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "soon", "", "١", "9" * 400, "9" * 5000])
def test_a_deadline_that_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        deadline(text)


def test_the_client_s_deadline_is_capped_by_the_server() -> None:
    for text, seconds in (("250", 0.25), ("999999999", 10)):
        before = time.monotonic()
        found = deadline(text)
        assert found.remaining(time.monotonic()) <= seconds <= found.remaining(before)


@pytest.mark.parametrize(
    ("text", "bulk"),
    [
        ("u=7", True),
        ("i, u=4", True),
        ("u=5;x", True),
        ("u=3", False),
        ("u=0", False),
        ("u=9", False),
        ("au=7", False),
        ("bulk", False),
        ("", False),
    ],
)
def test_less_than_ordinary_urgency_asks_for_the_bulk_lane(text: str, bulk: bool) -> None:
    scope = {"type": "http", "headers": [(b"priority", text.encode())]}
    assert lane_of(scope) is (Lane.BULK if bulk else Lane.INTERACTIVE)


async def test_work_past_its_deadline_is_a_deadline_error() -> None:
    with pytest.raises(DeadlineExceeded):
        await before(Deadline(0.0), asyncio.Event().wait())


async def test_nothing_begins_for_a_client_that_has_left_already() -> None:
    departure = Departure()
    departure.happen()
    with pytest.raises(Cancelled), departure:
        raise AssertionError


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
