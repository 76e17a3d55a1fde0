"""A worker's server and a front end that cannot be connected."""

import asyncio
import gc
import os
import secrets
import socket
from typing import Any

import pytest

from tests.fakes import GUARD, FakeEngine, FakeSlot
from tests.worker_fixture import WELCOME, wait_until
from workers.ipc.arena import PAGE, Arena
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker


def descriptors() -> int:
    gc.collect()  # what earlier tests left behind must not end between two counts
    return len(os.listdir("/proc/self/fd"))


def worker() -> Worker[FakeSlot]:
    return Worker(FakeEngine(), BatchLimits(8, 8))


async def admitted(host: WorkerServer, kind: socket.SocketKind) -> None:
    """Hand an arena to the server over a pair of sockets of this kind."""
    arena = Arena.create(PAGE)
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours:
        socket.send_fds(ours, [b"a"], [arena.fd])
        arena.close()
        await host._admit(theirs, worker(), WELCOME)


def test_a_front_end_that_cannot_be_connected_leaves_nothing_behind() -> None:
    async def test() -> None:
        host, before = WorkerServer(), descriptors()
        await admitted(host, socket.SOCK_SEQPACKET)  # asyncio connects stream sockets alone
        assert not host._sessions
        assert descriptors() == before

    asyncio.run(test())


def test_a_connection_that_is_cancelled_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async def never(*_: Any, **_named: Any) -> None:
            connecting.set()
            await asyncio.Event().wait()

        connecting = asyncio.Event()
        loop, before = asyncio.get_running_loop(), descriptors()
        monkeypatch.setattr(loop, "create_unix_connection", never)
        host = WorkerServer()
        task = asyncio.create_task(admitted(host, socket.SOCK_STREAM))
        await asyncio.wait_for(connecting.wait(), GUARD)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        del task  # its error holds the frames of the functions above
        assert not host._sessions
        assert descriptors() == before

    asyncio.run(test())


def test_a_front_end_that_connects_while_a_worker_retires_is_turned_away() -> None:
    async def test() -> None:
        host, arena, loop = WorkerServer(), Arena.create(PAGE), asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with ours:
            ours.setblocking(False)
            admitting = asyncio.create_task(host._admit(theirs, worker(), WELCOME))
            await asyncio.sleep(0)  # it waits for the arena
            host.retire()
            socket.send_fds(ours, [b"a"], [arena.fd])
            arena.close()
            async with asyncio.timeout(GUARD):
                await admitting
                assert await loop.sock_recv(ours, 1) == b""
            await wait_until(lambda: not host._sessions)

    asyncio.run(test())


def test_a_server_that_fails_leaves_connections_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end uses the slots of jobs again when their connection is closed."""

    async def test() -> None:
        async def fail(host: WorkerServer) -> None:
            await wait_until(lambda: any(each.protocol._transport for each in host._sessions))
            raise OSError("a fault of ours")

        monkeypatch.setattr(WorkerServer, "_keep_telling", fail)
        host, arena = WorkerServer(), Arena.create(PAGE)
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as ours:
            listener.bind(f"\0darkroom-test-{secrets.token_hex(8)}")
            listener.listen()
            ours.connect(listener.getsockname())
            socket.send_fds(ours, [b"a"], [arena.fd])
            arena.close()
            with pytest.raises(ExceptionGroup):
                await host.serve(listener, worker(), WELCOME)
            (session,) = host._sessions
            transport = session.protocol._transport
            assert transport is not None
            assert not transport.is_closing()
            session.protocol.close()
            await wait_until(lambda: session not in host._sessions)

    asyncio.run(test())
    gc.collect()  # what the error holds: later tests count descriptors


def test_a_front_end_without_an_arena_leaves_nothing_behind() -> None:
    async def test() -> None:
        host, before = WorkerServer(), descriptors()
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with ours:
            ours.send(b"a")
            await host._admit(theirs, worker(), WELCOME)
        assert not host._sessions
        assert descriptors() == before

    asyncio.run(test())
