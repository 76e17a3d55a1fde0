"""Addresses are taken at once and listened at later; front ends share their connections."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import cast

import pytest

from app.admission.counters import Counters, Total
from app.connections import listening as module
from app.connections.listening import ConnectionBalancer, bind
from tests.server import PATIENCE

_ACCEPTED: list[asyncio.Transport] = []


@pytest.fixture(autouse=True)
async def all_closed() -> AsyncIterator[None]:
    """Close what was accepted: a forgotten transport is a warning in a later test."""
    yield
    while _ACCEPTED:
        _ACCEPTED.pop().abort()
    await asyncio.sleep(0)


@dataclass
class FrontEnd(asyncio.Protocol):
    """Counts its connections, which last."""

    counters: Counters = field(default_factory=Counters)
    connections: list[asyncio.BaseTransport] = field(default_factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.counters.add(Total.CONNECTIONS, 1)
        self.connections.append(transport)
        _ACCEPTED.append(cast(asyncio.Transport, transport))

    def opened(self, listening: socket.socket) -> ConnectionBalancer:
        return ConnectionBalancer(listening, lambda: self, self.counters)


def front_ends(n: int) -> list[FrontEnd]:
    with closing(Counters.create(n)) as counts:
        assert counts.fd is not None
        return [FrontEnd(Counters.attach(counts.fd, n)) for _ in range(n)]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


async def connected(front_ends: list[FrontEnd], n: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(len(each.connections) for each in front_ends) < n:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_every_front_end_gets_as_many_connections(listening: socket.socket) -> None:
    all_four = front_ends(4)
    acceptors = [each.opened(listening.dup()) for each in all_four]
    with ExitStack() as stack:
        for n in range(32):
            stack.enter_context(socket.create_connection(listening.getsockname()))
            await connected(all_four, n + 1)
    assert [len(each.connections) for each in all_four] == [8] * 4
    for each in acceptors:
        each.close()


async def test_a_dead_front_end_without_connections_keeps_nobody_waiting(
    listening: socket.socket,
) -> None:
    front_end, _dead = front_ends(2)
    alive = front_end.opened(listening.dup())
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        await connected([front_end], 8)
    alive.close()


async def test_a_front_end_counts_from_the_first_connection_that_it_can_take_to_the_last(
    listening: socket.socket,
) -> None:
    ours, other = front_ends(2)
    ours.counters.add(Total.CONNECTIONS, 1)
    acceptor = ours.opened(listening.dup())
    assert ours.counters.fewest(Total.CONNECTIONS, 0)  # the other front end starts
    there = other.opened(listening.dup())
    assert not ours.counters.fewest(Total.CONNECTIONS, 0)
    there.close()
    assert ours.counters.fewest(Total.CONNECTIONS, 0)
    acceptor.close()


async def test_who_could_not_accept_tries_again(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NO_ROOM", 0.0)

    class Crowded(socket.socket):
        """Fails once, as with too many open files."""

        failures = 1

        def accept(self) -> tuple[socket.socket, object]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    front_end, crowded = FrontEnd(), Crowded(fileno=listening.dup().detach())
    made = front_end.opened(crowded)
    with socket.create_connection(listening.getsockname()):
        await connected([front_end], 1)
    made.close()


async def test_connections_that_wait_at_the_end_are_taken_and_none_after_it(
    listening: socket.socket,
) -> None:
    front_end, _other = front_ends(2)
    front_end.counters.add(Total.CONNECTIONS, 1)  # the other has none
    acceptor = front_end.opened(listening.dup())
    with socket.create_connection(listening.getsockname()):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        acceptor.close()
        await connected([front_end], 1)
    with socket.create_connection(listening.getsockname()):
        await asyncio.sleep(2 * module.TURN)
    assert len(front_end.connections) == 1


async def test_a_client_is_refused_until_the_server_listens_and_a_second_server_then() -> None:
    (bound,) = bind("127.0.0.1", 0)
    with bound:
        address = bound.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        bound.listen()
        socket.create_connection(address).close()
        with pytest.raises(OSError, match=r"in use.*127\.0\.0\.1"):
            bind(*address)
