"""The server tells that a client has left; nothing has to wait for it."""

import asyncio

from starlette.requests import Request

from app.http.departure import DEPARTURE, ClientLeft, Departure


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


def test_a_request_of_a_server_that_does_not_tell_has_no_departure() -> None:
    departure = Departure()
    assert ClientLeft(Request({"type": "http"})).departure is None
    told = ClientLeft(Request({"type": "http", DEPARTURE: departure}))
    assert told.departure is departure
