"""How front ends share the connections of one socket."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from app.admission.counters import Counters, Total
from app.connections.entrance import Entrance, Ticket
from app.connections.guard import Guard
from app.connections.limits import ConnectionLimits
from app.connections.phases import Phase
from app.processes import connection_balancer
from app.processes.connection_balancer import ConnectionBalancer, SharedSocket
from app.processes.connection_counts import Alone, ConnectionCounts
from models.settings import Settings
from tests.server import PATIENCE

_ACCEPTED: list[asyncio.Transport] = []


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run it, then close what was accepted: a forgotten transport is a warning in a later test."""

    async def whole() -> None:
        try:
            await scenario()
        finally:
            while _ACCEPTED:
                _ACCEPTED.pop().abort()
            await asyncio.sleep(0)

    asyncio.run(whole())


@dataclass
class FrontEnd(asyncio.Protocol):
    """Counts its connections, which last."""

    connections: list[asyncio.BaseTransport] = field(default_factory=list)

    def __call__(self, _ticket: Ticket) -> "FrontEnd":
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connections.append(transport)
        _ACCEPTED.append(cast(asyncio.Transport, transport))


def entrance() -> Entrance:
    return Entrance(Guard(ConnectionLimits.of(Settings(), 1 << 16)), Counters())


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


async def connected(front_ends: list[FrontEnd], n: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(len(each.connections) for each in front_ends) < n:  # noqa: ASYNC110
            await asyncio.sleep(0)


def opened(
    listening: socket.socket, tally: ConnectionCounts, number: int, front_end: FrontEnd
) -> ConnectionBalancer:
    shared = SharedSocket(listening.dup(), tally, number)
    return ConnectionBalancer(shared, front_end, lambda: len(front_end.connections), entrance())


def test_every_front_end_gets_as_many_connections(listening: socket.socket) -> None:
    async def scenario() -> None:
        tally, front_ends = ConnectionCounts.create(4), [FrontEnd() for _ in range(4)]
        acceptors = [opened(listening, tally, n, each) for n, each in enumerate(front_ends)]
        with ExitStack() as stack:
            for n in range(32):
                stack.enter_context(socket.create_connection(listening.getsockname()))
                await connected(front_ends, n + 1)
        assert [len(each.connections) for each in front_ends] == [8] * 4
        for each in acceptors:
            each.close()

    run(scenario)


def test_a_dead_front_end_without_connections_keeps_nobody_waiting(
    listening: socket.socket,
) -> None:
    async def scenario() -> None:
        tally, front_end = ConnectionCounts.create(2), FrontEnd()
        alive = opened(listening, tally, 0, front_end)
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            await connected([front_end], 8)
        alive.close()

    run(scenario)


@pytest.mark.parametrize("overloaded", [True, False])
def test_an_overloaded_server_takes_connections_together(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch, overloaded: bool
) -> None:
    monkeypatch.setattr(connection_balancer, "REST", 3600.0)

    async def scenario() -> None:
        shared, front_end = SharedSocket(listening.dup(), Alone()), FrontEnd()
        count, pressed = (lambda: len(front_end.connections)), (lambda: overloaded)
        acceptor = ConnectionBalancer(shared, front_end, count, entrance(), pressed=pressed)
        with ExitStack() as stack:
            for number in range(4):
                stack.enter_context(socket.create_connection(listening.getsockname()))
                if number == 0 or not overloaded:
                    await connected([front_end], number + 1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(front_end.connections) == (1 if overloaded else 4)
        acceptor.close()

    run(scenario)


def test_connections_that_wait_for_an_overloaded_server_are_taken_after_its_rest(
    listening: socket.socket,
) -> None:
    async def scenario() -> None:
        shared, front_end = SharedSocket(listening.dup(), Alone()), FrontEnd()
        count = lambda: len(front_end.connections)  # noqa: E731
        acceptor = ConnectionBalancer(shared, front_end, count, entrance(), pressed=lambda: True)
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(listening.getsockname()))
                await asyncio.sleep(0)
            await connected([front_end], 8)
        acceptor.close()

    run(scenario)


def test_connections_of_a_rest_are_taken_without_listening_for_them(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_balancer, "REST", 3600.0)
    listened: list[bool] = []

    class Observed(socket.socket):
        """Notes whether the event loop watches it when a connection is taken."""

        def accept(self) -> tuple[socket.socket, object]:
            accepted = super().accept()
            listened.append(asyncio.get_running_loop().remove_reader(self))
            return accepted

    async def scenario() -> None:
        front_end, observed = FrontEnd(), Observed(fileno=listening.dup().detach())
        shared, count = SharedSocket(observed, Alone()), lambda: len(front_end.connections)
        acceptor = ConnectionBalancer(shared, front_end, count, entrance(), pressed=lambda: True)
        with ExitStack() as stack:
            stack.enter_context(socket.create_connection(listening.getsockname()))
            await connected([front_end], 1)
            stack.enter_context(socket.create_connection(listening.getsockname()))
            acceptor._rested()
            await connected([front_end], 2)
        assert listened == [True, False]
        acceptor.close()

    run(scenario)


def test_a_server_listens_again_when_nothing_came_while_it_rested(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_balancer, "REST", 0.0)

    async def scenario() -> None:
        front_end = FrontEnd()
        shared, count = SharedSocket(listening.dup(), Alone()), lambda: len(front_end.connections)
        acceptor = ConnectionBalancer(shared, front_end, count, entrance(), pressed=lambda: True)
        loop = asyncio.get_running_loop()
        with socket.create_connection(listening.getsockname()):
            await connected([front_end], 1)
            async with asyncio.timeout(PATIENCE):
                while not loop.remove_reader(shared.socket):  # noqa: ASYNC110
                    await asyncio.sleep(0)
        acceptor.close()

    run(scenario)


def test_a_server_rests_for_longer_after_several_connections_at_once(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_balancer, "REST", 0.0)
    monkeypatch.setattr(connection_balancer, "LONG_REST", 3600.0)

    async def scenario() -> None:
        front_end = FrontEnd()
        shared, count = SharedSocket(listening.dup(), Alone()), lambda: len(front_end.connections)
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            acceptor = ConnectionBalancer(
                shared, front_end, count, entrance(), pressed=lambda: True
            )
            await connected([front_end], 2)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not asyncio.get_running_loop().remove_reader(shared.socket)
        acceptor.close()

    run(scenario)


def test_who_could_not_accept_tries_again(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_balancer, "NO_ROOM", 0.0)

    class Crowded(socket.socket):
        """Fails once, as with too many open files."""

        failures = 1

        def accept(self) -> tuple[socket.socket, object]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    async def scenario() -> None:
        front_end, crowded = FrontEnd(), Crowded(fileno=listening.dup().detach())
        made = ConnectionBalancer(
            SharedSocket(crowded, ConnectionCounts.create(1), 0),
            front_end,
            lambda: len(front_end.connections),
            entrance(),
        )
        with socket.create_connection(listening.getsockname()):
            await connected([front_end], 1)
        made.close()

    run(scenario)


@pytest.mark.parametrize("begins", [True, False])
def test_a_client_without_room_waits_while_others_are_begun_that_may_make_some(
    listening: socket.socket, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is tried again in the next turn of the event loop: nothing else is accepted meanwhile.
    monkeypatch.setattr(connection_balancer, "PAUSE", 2 * PATIENCE)

    async def scenario() -> None:
        ended = list[str]()
        few = replace(ConnectionLimits.of(Settings(), 1 << 16), connections=1, per_client=1)
        guard, waiting = Guard(few, ended.append), [1]
        front_end, entering = FrontEnd(), Entrance(guard, Counters())
        taken = entering.ticket("127.0.0.1")
        assert isinstance(taken, Ticket)
        balancer = ConnectionBalancer(
            SharedSocket(listening.dup(), Alone()),
            front_end,
            lambda: len(front_end.connections),
            entering,
            waiting=waiting.pop if not begins else lambda: waiting[0],
        )
        with socket.create_connection(listening.getsockname()) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            if begins:
                for _ in range(50):
                    await asyncio.sleep(0)
                assert not ended
                taken.leave()
                await connected([front_end], 1)
            else:
                waiting[:] = [0, 1]
                assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 429")
                assert not waiting
        balancer.close()
        entering.end()

    run(scenario)


def test_nothing_is_accepted_after_the_end(listening: socket.socket) -> None:
    async def scenario() -> None:
        front_end = FrontEnd()
        opened(listening, ConnectionCounts.create(1), 0, front_end).close()
        with socket.create_connection(listening.getsockname()):
            await asyncio.sleep(2 * connection_balancer.PAUSE)
        assert not front_end.connections

    run(scenario)


def test_a_connection_that_is_waiting_at_the_end_is_taken(listening: socket.socket) -> None:
    async def scenario() -> None:
        tally, front_end = (
            ConnectionCounts.create(2),
            FrontEnd([asyncio.Transport()]),
        )  # the other has none
        acceptor = opened(listening, tally, 0, front_end)
        with socket.create_connection(listening.getsockname()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            acceptor.close()
            await connected([front_end], 2)

    run(scenario)


def test_a_handshake_that_does_not_end_makes_room_for_another_client(
    listening: socket.socket,
) -> None:
    async def scenario() -> None:
        time, counters, front_end = [0.0], Counters(), FrontEnd()
        limits = replace(ConnectionLimits.of(Settings(), 1 << 16), connections=2, per_client=2)
        guard = Guard(limits, clock=lambda: time[0])
        acceptor = ConnectionBalancer(
            SharedSocket(listening.dup(), Alone()),
            front_end,
            lambda: 0,
            Entrance(guard, counters, encrypted=True),
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            PATIENCE,
        )
        with ExitStack() as stack:
            first, second = (
                stack.enter_context(socket.create_connection(listening.getsockname()))
                for _ in range(2)
            )
            async with asyncio.timeout(PATIENCE):
                while len(guard.phases.members(Phase.HEAD)) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            time[0] = 3.0
            third = stack.enter_context(socket.create_connection(listening.getsockname()))
            third.setblocking(False)
            first.setblocking(False)
            loop = asyncio.get_running_loop()
            assert await asyncio.wait_for(loop.sock_recv(first, 1), PATIENCE) == b""
            assert counters.total(Total.CONNECTIONS) == 2
            with pytest.raises(BlockingIOError):
                third.recv(1)
            second.close()
        acceptor.close()
        while acceptor.taking:  # noqa: ASYNC110 (their clients have left)
            await asyncio.sleep(0)
        assert counters.total(Total.CONNECTIONS) == 0
        assert not guard.phases.members(Phase.HEAD)

    run(scenario)
