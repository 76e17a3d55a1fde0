"""Refused requests are left unread for a moment, and those of one moment end it together."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from app.admission.counters import Counters
from app.connections.bare import resting
from app.connections.bare.discarded_connection import DiscardedConnection, Watching
from app.connections.bare.resting import Resting
from app.connections.entrance import Ticket


class Refusals:
    """Refused connections, and those whose rest has ended."""

    def __init__(self) -> None:
        self.resumed: list[DiscardedConnection] = []
        self.resting = Resting(self._resume)

    def _resume(self, refused: DiscardedConnection) -> None:
        self.resumed.append(refused)
        self.resting.remove(refused)

    def add(self) -> DiscardedConnection:
        ticket, owner = Ticket(Counters(), None, None), cast(Watching, None)  # it ends none
        with socket.socket() as connection:  # it is closed, because nothing is read here
            refused = DiscardedConnection(owner, connection, ticket, 1, None)
        self.resting.add(refused)
        return refused


def run(scenario: Callable[[Refusals], Awaitable[None]]) -> None:
    async def whole() -> None:
        refusals = Refusals()
        await scenario(refusals)
        refusals.resting.end()

    asyncio.run(whole())


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not found():  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_those_whose_rest_ends_soon_end_it_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resting, "TOGETHER", 7200.0)

    async def scenario(refusals: Refusals) -> None:
        first = refusals.add()
        monkeypatch.setattr(resting, "REST", 3600.0)
        second = refusals.add()
        await until(lambda: bool(refusals.resumed))
        assert refusals.resumed == [first, second]

    run(scenario)


def test_one_that_was_refused_later_rests_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(refusals: Refusals) -> None:
        first = refusals.add()
        monkeypatch.setattr(resting, "REST", 3600.0)
        second = refusals.add()
        await until(lambda: bool(refusals.resumed))
        assert refusals.resumed == [first]
        assert list(refusals.resting) == [second]

    run(scenario)


def test_the_rest_of_a_later_one_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "TOGETHER", 0.0)

    async def scenario(refusals: Refusals) -> None:
        first = refusals.add()
        monkeypatch.setattr(resting, "REST", 2 * resting.REST)
        second = refusals.add()
        await until(lambda: len(refusals.resumed) == 2)
        assert refusals.resumed == [first, second]
        third = refusals.add()
        await until(lambda: len(refusals.resumed) == 3)
        assert refusals.resumed[-1] is third

    run(scenario)


def test_one_that_was_removed_is_not_resumed() -> None:
    async def scenario(refusals: Refusals) -> None:
        first, second = refusals.add(), refusals.add()
        assert refusals.resting.remove(first)
        assert not refusals.resting.remove(first)
        await until(lambda: bool(refusals.resumed))
        assert refusals.resumed == [second]

    run(scenario)
