"""How front ends share the connections of one socket."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import cast

import pytest

from app.processes import connection_balancer
from app.processes.connection_balancer import (
    ABSENT,
    ConnectionBalancer,
    ConnectionCounts,
    SharedSocket,
)
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

    def __call__(self) -> "FrontEnd":
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connections.append(transport)
        _ACCEPTED.append(cast(asyncio.Transport, transport))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


async def connected(front_ends: list[FrontEnd], n: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(len(each.connections) for each in front_ends) < n:  # noqa: ASYNC110
            await asyncio.sleep(0)


def opened(
    listening: socket.socket, counts: ConnectionCounts, number: int, front_end: FrontEnd
) -> ConnectionBalancer:
    shared = SharedSocket(listening.dup(), counts, number)
    count = lambda: len(front_end.connections)  # noqa: E731
    return ConnectionBalancer(shared, front_end, count, lambda: False)


def test_every_front_end_gets_as_many_connections(listening: socket.socket) -> None:
    async def scenario() -> None:
        counts, front_ends = ConnectionCounts.create(4), [FrontEnd() for _ in range(4)]
        acceptors = [opened(listening, counts, n, each) for n, each in enumerate(front_ends)]
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
        counts, front_end = ConnectionCounts.create(2), FrontEnd()
        counts._counts[1] = 0  # of a process that was killed
        alive = opened(listening, counts, 0, front_end)
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            await connected([front_end], 8)
        alive.close()

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
        room = list[bool]()
        made = ConnectionBalancer(
            SharedSocket(crowded), front_end, lambda: 0, lambda: room.append(True)
        )
        with socket.create_connection(listening.getsockname()):
            await connected([front_end], 1)
        assert room == [True]
        made.close()

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
        counts, front_end = ConnectionCounts.create(2), FrontEnd([asyncio.Transport()])
        counts._counts[1] = 0  # the other has none
        acceptor = opened(listening, counts, 0, front_end)
        with socket.create_connection(listening.getsockname()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            acceptor.close()
            await connected([front_end], 2)

    run(scenario)


def test_a_machine_of_many_cores_has_counts_for_all_its_front_ends() -> None:
    n = 2 * 480
    with closing(ConnectionCounts.create(n)) as counts:
        attached = ConnectionCounts(counts.fd, n)
        assert attached.enter(479) == 479
        assert attached.enter(479) == 959
        assert attached.fewest(959, 3) is False
        assert attached.fewest(479, 3) is True
        assert [*counts._counts].count(ABSENT) == n - 2
