"""Silent connections cost no transport, and keep no client waiting that has sent something."""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from app.admission.counters import Counters, Total
from app.connections.bare import arrivals
from app.connections.bare.silent_connections import Member, SilentConnections
from app.connections.entrance import Entrance
from app.connections.guard import Guard
from tests.connection import LIMITS


@dataclass
class House:
    """Silent connections behind an entrance; `begun` are the numbers of those that were begun."""

    stack: ExitStack
    ended: list[str] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    members: set[Member] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.guard = Guard(LIMITS, self.ended.append, clock=lambda: self.now)
        self.entrance = Entrance(self.guard, self.counters)
        self.silent = SilentConnections(self.guard, self.members)
        self.stack.callback(self.silent.end)

    def come(self, number: int = 0, says: bytes = b"") -> socket.socket:
        """Connect a client; return its end of the connection."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            self.stack.enter_context(each)
        theirs.sendall(says)
        ours.setblocking(False)
        ticket = self.entrance.enter(ours, "192.0.2.1")
        assert ticket is not None
        self.silent.enter(ours, ticket, lambda: self.begun.append(number))
        return theirs

    @property
    def connections(self) -> int:
        return self.counters.total(Total.CONNECTIONS)


def run(scenario: Callable[[House], Awaitable[None]]) -> None:
    async def whole() -> None:
        with ExitStack() as stack:
            await scenario(House(stack))

    asyncio.run(whole())


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not found():  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_a_client_that_has_sent_something_is_begun_at_once() -> None:
    async def scenario(house: House) -> None:
        house.come(7, b"G")
        assert house.begun == [7]
        assert not house.members

    run(scenario)


def test_a_client_that_has_just_sent_something_makes_no_room_for_others() -> None:
    async def scenario(house: House) -> None:
        clients = [house.come(number) for number in range(3)]
        house.now = 5.0
        clients[0].sendall(b"G")
        assert house.guard.make_room(None)
        assert clients[1].recv(1) == b""
        assert house.guard.make_room("192.0.2.1")
        assert not house.guard.make_room(None)
        await until(lambda: bool(house.begun))
        assert house.begun == [0]

    run(scenario)


def test_a_silent_client_is_begun_with_its_first_byte_before_all_that_stay_silent() -> None:
    async def scenario(house: House) -> None:
        clients = [house.come(number) for number in range(100)]
        assert len(house.members) == 100
        clients[60].sendall(b"G")
        await until(lambda: bool(house.begun))
        assert house.begun == [60]
        assert len(house.members) == 99
        assert house.connections == 100

    run(scenario)


def test_the_place_of_a_client_that_leaves_is_given_back() -> None:
    async def scenario(house: House) -> None:
        house.come().close()
        await until(lambda: not house.members)
        assert not house.begun
        assert house.connections == 0

    run(scenario)


def test_a_silent_client_is_closed_after_the_idle_timeout() -> None:
    async def scenario(house: House) -> None:
        client = house.come()
        house.now = LIMITS.idle_timeout - 1
        house.guard.phases.sweep()
        assert house.connections == 1
        house.now = LIMITS.idle_timeout
        house.guard.phases.sweep()
        assert house.ended == ["idle"]
        assert house.connections == 0
        assert client.recv(1) == b""

    run(scenario)


def test_the_oldest_silent_client_makes_room() -> None:
    async def scenario(house: House) -> None:
        oldest, newer = house.come(), house.come()
        newer.setblocking(False)
        assert house.guard.make_room("192.0.2.1")
        assert house.ended == ["evicted"]
        assert house.connections == 1
        assert oldest.recv(1) == b""
        with pytest.raises(BlockingIOError):
            newer.recv(1)

    run(scenario)


def test_the_end_of_the_server_closes_silent_clients() -> None:
    async def scenario(house: House) -> None:
        client = house.come()
        for member in list(house.members):
            member.shutdown()
        assert client.recv(1) == b""
        assert house.connections == 0
        assert house.ended == []

    run(scenario)


def test_of_many_that_speak_at_once_a_few_are_begun_in_each_turn_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BEGUN_AT_ONCE", 4)

    async def scenario(house: House) -> None:
        for client in [house.come(number) for number in range(10)]:
            client.sendall(b"G")
        known = [0]
        while len(house.begun) < 10:
            await asyncio.sleep(0)
            known.append(len(house.begun))
        steps = [after - before for before, after in itertools.pairwise(known)]
        assert max(steps) == 4

    run(scenario)


def test_requests_without_a_body_are_begun_before_uploads_that_came_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BEGUN_AT_ONCE", 4)

    async def scenario(house: House) -> None:
        for number in range(50):
            house.come(number, b"P")
        house.come(50, b"G")
        house.come(51).sendall(b"H")
        assert house.begun == [0, 1, 2, 3]
        assert house.silent.arrivals.waiting == 47
        await until(lambda: 51 in house.begun)
        assert len(house.begun) <= 16
        await until(lambda: not house.silent.arrivals.waiting)
        uploads = [number for number in house.begun if number < 50]
        assert uploads == list(range(50))

    run(scenario)


def test_connections_that_wait_to_be_begun_are_closed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BEGUN_AT_ONCE", 0)

    async def scenario(house: House) -> None:
        house.silent = SilentConnections(house.guard, house.members)
        client = house.come(0, b"P")
        house.silent.end()
        assert house.connections == 0
        with pytest.raises(ConnectionResetError):  # its byte was not read
            client.recv(1)

    run(scenario)
