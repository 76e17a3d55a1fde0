"""A front end's connection to a worker that misbehaves, or that is not there."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes import fake_job
from tests.worker_fixture import wait_until
from workers.ipc import frames as wire
from workers.ipc import worker_client as link_module
from workers.ipc.arena import PAGE, Arena, ArenaSlot
from workers.ipc.frames import Done, Submit, Welcome
from workers.ipc.worker_client import Hooks, Pending, WorkerConnection


def nothing(*_: object) -> None:
    """Accept any arguments and do nothing."""


def hooks(**replaced: Callable[..., Any]) -> Hooks:
    given: dict[str, Any] = {
        "on_done": nothing,
        "on_welcome": lambda _welcome: True,
        "on_lost": nothing,
        "on_batch": nothing,
        "end_process": lambda: pytest.fail("the process would have ended"),
    }
    return Hooks(**given | replaced)


class Peer:
    """A worker's end, by hand: answers nothing unless a test says so."""

    def __init__(self) -> None:
        self.address = f"\0darkroom-test-{secrets.token_hex(8)}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen()
        self.listener.setblocking(False)
        self.connection: socket.socket | None = None

    async def accept(self) -> None:
        loop = asyncio.get_running_loop()
        self.connection, _ = await loop.sock_accept(self.listener)

    async def send(self, *frames: wire.Frame) -> None:
        assert self.connection is not None
        bodies = [wire.ENCODER.encode(frame) for frame in frames]
        packed = b"".join(wire._LENGTH.pack(len(b)) + b for b in bodies)
        await asyncio.get_running_loop().sock_sendall(self.connection, packed)

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@asynccontextmanager
async def linked(**replaced: Callable[..., Any]) -> AsyncIterator[tuple[WorkerConnection, Peer]]:
    """Yield a connection and the peer at its other end."""
    arena, peer = Arena.create(PAGE), Peer()
    link = WorkerConnection(peer.address, arena, hooks(**replaced))
    await peer.accept()
    await peer.send(Welcome("fake", []))
    try:
        await wait_until(lambda: link.line is not None)
        yield link, peer
    finally:
        await link.close()
        peer.close()
        arena.close()


def run(test: Callable[[], Any]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(guarded())


def test_an_error_of_any_kind_while_connecting_is_followed_by_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures, same = [RuntimeError("a fault of ours")], wire.same_user

    def sometimes(connection: socket.socket) -> bool:
        if failures:
            raise failures.pop()
        return same(connection)

    monkeypatch.setattr(wire, "same_user", sometimes)

    async def test() -> None:
        arena, peer = Arena.create(PAGE), Peer()
        link = WorkerConnection(peer.address, arena, hooks())
        await peer.accept()
        assert peer.connection is not None
        peer.connection.close()
        await peer.accept()
        await peer.send(Welcome("fake", []))
        await wait_until(lambda: link.line is not None)
        await link.close()
        peer.close()
        arena.close()

    run(test)


def test_closing_does_not_wait_for_a_peer_that_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "FAREWELL", 0.05)

    async def test() -> None:
        async with linked() as (link, _):
            assert link.line is not None
            full = Submit(1, 0, 1, (1, 1, 1), "x" * 500_000, 0.0, "bulk")
            link.line.protocol.send([full] * 20)
            await asyncio.wait_for(link.close(), 5)

    run(test)


def test_a_connect_that_is_cancelled_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []
    connecting = asyncio.Event()

    class Noted(socket.socket):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            made.append(self)

    async def never(*_: object) -> None:
        connecting.set()
        await asyncio.Event().wait()

    async def test() -> None:
        monkeypatch.setattr(socket, "socket", Noted)
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never, raising=False)
        arena = Arena.create(PAGE)
        link = WorkerConnection("\0nobody", arena, hooks())
        await connecting.wait()
        await link.close()
        arena.close()
        assert [each.fileno() for each in made] == [-1]

    run(test)


def test_an_answer_to_a_job_that_is_not_ours_costs_no_other_answer() -> None:
    answered: list[int] = []

    async def test() -> None:
        def on_done(_pending: Pending, done: Done) -> None:
            answered.append(done.number)

        async with linked(on_done=on_done) as (link, peer):
            assert link.line is not None
            waiter = asyncio.get_running_loop().create_future()
            pending = Pending(7, fake_job(), ArenaSlot(0, PAGE), waiter)
            link.line.submit(pending, Submit(7, 0, PAGE, (1, 1, 1), "a", 0.0, "bulk"))
            await peer.send(Done(99), Done(7))
            await wait_until(lambda: answered == [7])

    run(test)


def test_a_fault_of_ours_in_one_answer_is_no_nonsense_of_the_worker_s() -> None:
    answered: list[int] = []

    async def test() -> None:
        def on_done(_pending: Pending, done: Done) -> None:
            answered.append(done.number)
            if done.number == 1:
                raise KeyError("a fault of ours")

        async with linked(on_done=on_done) as (link, peer):
            for number in (1, 2):
                assert link.line is not None
                waiter = asyncio.get_running_loop().create_future()
                pending = Pending(number, fake_job(), ArenaSlot(0, PAGE), waiter)
                link.line.submit(pending, Submit(number, 0, PAGE, (1, 1, 1), "a", 0.0, "bulk"))
            await peer.send(Done(1), Done(2))
            await wait_until(lambda: answered == [1, 2])

    run(test)


def test_a_worker_that_leaves_keeps_its_line_while_the_next_one_is_called() -> None:
    async def test() -> None:
        async with linked() as (link, peer):
            leaving, line = peer.connection, link.line
            await peer.send(wire.Leaving())
            await wait_until(lambda: link.line is None)
            await peer.accept()
            await peer.send(Welcome("next", []))
            await wait_until(lambda: link.line is not None and link.line is not line)
            assert line is not None
            assert not line.gone.is_set()
            assert line in link.lines
            assert leaving is not None
            leaving.close()
            await line.gone.wait()

    run(test)
