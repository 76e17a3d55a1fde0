"""Addresses are taken at once and listened at later; front ends share their connections."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from typing import cast

import pytest

from app.admission.counters import Counters, Total
from app.connections import listening as module
from app.connections.listening import ConnectionBalancer, bind
from tests.server import PATIENCE


class FrontEnd(asyncio.Protocol):
    """Counts its connections, which last."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.connections: list[asyncio.Transport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.counters.add(Total.CONNECTIONS, 1)
        self.connections.append(cast(asyncio.Transport, transport))

    def opened(self, listening: socket.socket) -> ConnectionBalancer:
        return ConnectionBalancer(listening, lambda: self, self.counters)


@pytest.fixture
async def front_ends() -> AsyncIterator[list[FrontEnd]]:
    with closing(Counters.create(4)) as counts:
        assert counts.fd is not None
        made = [FrontEnd(Counters.attach(counts.fd, 4)) for _ in range(4)]
    yield made
    for transport in (transport for each in made for transport in each.connections):
        transport.abort()  # a forgotten transport is a warning in a later test
    await asyncio.sleep(0)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


async def connected(front_ends: list[FrontEnd], n: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(len(each.connections) for each in front_ends) < n:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize(("alive", "numbers"), [(4, [8] * 4), (1, [32, 0, 0, 0])])
async def test_every_front_end_that_is_alive_gets_as_many_connections(
    alive: int, numbers: list[int], front_ends: list[FrontEnd], listening: socket.socket
) -> None:
    acceptors = [each.opened(listening.dup()) for each in front_ends[:alive]]
    with ExitStack() as stack:
        for n in range(32):
            stack.enter_context(socket.create_connection(listening.getsockname()))
            await connected(front_ends, n + 1)
    assert [len(each.connections) for each in front_ends] == numbers
    for each in acceptors:
        each.close()


async def test_who_could_not_accept_tries_again(
    front_ends: list[FrontEnd], listening: socket.socket, monkeypatch: pytest.MonkeyPatch
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

    made = front_ends[0].opened(Crowded(fileno=listening.dup().detach()))
    with socket.create_connection(listening.getsockname()):
        await connected(front_ends, 1)
    made.close()


async def test_connections_that_wait_at_the_end_are_taken_and_none_after_it(
    front_ends: list[FrontEnd], listening: socket.socket
) -> None:
    front_end = front_ends[0]
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
    with bind("127.0.0.1", 0) as bound:
        address = bound.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        bound.listen()
        socket.create_connection(address).close()
        with pytest.raises(OSError, match=r"in use.*127\.0\.0\.1"):
            bind(*address)
