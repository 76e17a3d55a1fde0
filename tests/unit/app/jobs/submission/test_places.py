"""Bodies that arrive slowly keep no place from others that need one."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive

from app.jobs.submission.places import ARRIVING, GRACE, SLOW, Place, Places
from models.domain.errors import Overloaded, SlowBody
from tests.fakes import FakeClock

SCOPE = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}


def sends(n_bytes: int) -> Receive:
    """Return a client that sends a piece of `n_bytes`, and then waits."""
    left = [n_bytes]

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bytes(left.pop()), "more_body": True}

    return receive


async def read(place: Place, receive: Receive) -> None:
    async for _ in place.request(Request(SCOPE, receive)).stream():
        pass


def given_up(n_bytes: Callable[[int], int], seconds: float, more: int) -> list[int]:
    """Return which bodies are given up when all places are taken and `more` bodies come.

    Of each body `n_bytes` have come, and `seconds` have passed.
    """

    async def run() -> list[int]:
        clock = FakeClock(1000.0)
        places = Places(clock)
        with ExitStack() as stack:
            bodies = []
            for number in range(ARRIVING):
                place = stack.enter_context(places.take(f"client {number // 4}"))
                bodies.append(asyncio.create_task(read(place, sends(n_bytes(number)))))
            await asyncio.wait(bodies, timeout=0.05)
            clock.advance(seconds)
            try:
                for number in range(more):
                    stack.enter_context(places.take(f"new client {number}"))
            finally:
                await asyncio.wait(bodies, timeout=0.05)
                ended = [each for each in bodies if each.done()]
                for each in bodies:
                    each.cancel()
                errors = await asyncio.gather(*bodies, return_exceptions=True)
            found = [bodies.index(each) for each in ended]
            assert all(isinstance(errors[each], SlowBody) for each in found)
            return found

    return asyncio.run(run())


def test_the_slowest_bodies_leave_their_places_to_others() -> None:
    assert given_up(lambda number: 1000 + 100 * abs(number - 5), 10 * GRACE, 1) == [5]
    assert given_up(lambda number: 1000 + 100 * number, 10 * GRACE, 3) == [0, 1, 2]


def test_bodies_that_are_fast_or_have_just_begun_keep_their_places() -> None:
    with pytest.raises(Overloaded):
        given_up(lambda _: int(10 * GRACE * SLOW), 10 * GRACE, 1)
    with pytest.raises(Overloaded):
        given_up(lambda _: 1, GRACE / 2, 1)


def test_a_body_that_waits_for_the_server_is_not_slow() -> None:
    async def test() -> None:
        clock = FakeClock(1000.0)
        with Places(clock).take("me") as place:
            stream = place.request(Request(SCOPE, sends(1))).stream()
            await anext(stream)
            clock.advance(100 * GRACE)
            assert place.rate is None

    asyncio.run(test())


@pytest.mark.parametrize("more", [True, False])
def test_a_piece_that_comes_when_the_place_is_taken_away_keeps_it_only_if_it_is_the_last(
    more: bool,
) -> None:
    async def test() -> None:
        place = Place(FakeClock(1000.0))
        message: Message = {"type": "http.request", "body": b"x", "more_body": more}
        pieces = asyncio.Queue[Message]()
        reading = asyncio.create_task(read(place, pieces.get))
        await asyncio.sleep(0)
        pieces.put_nowait(message)
        place.shed()
        if more:
            with pytest.raises(SlowBody):
                async with asyncio.timeout(1.0):
                    await reading
        else:
            await reading

    asyncio.run(test())
