"""A worker's server and front ends that come at the wrong moment."""

import asyncio
import gc
import secrets
import socket
import weakref

import pytest

from tests.fakes import GUARD, FakeEngine, FakeSlot, fake_job
from tests.worker_fixture import WELCOME, wait_until
from workers.ipc import worker_server
from workers.ipc.arena import PAGE, Arena, ArenaSlot
from workers.ipc.frames import ENCODER, Submit, encode_operation
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker


def worker() -> Worker[FakeSlot]:
    return Worker(FakeEngine(), BatchLimits(8, 8))


async def test_a_front_end_that_connects_while_a_worker_retires_is_turned_away() -> None:
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


async def test_a_server_that_fails_leaves_connections_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end uses the slots of jobs again when their connection is closed."""

    async def fail(host: WorkerServer) -> None:
        await wait_until(lambda: bool(host._sessions))
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
        assert session._transport is not None
        assert not session._transport.is_closing()
        session.close()
        await wait_until(lambda: session not in host._sessions)
    gc.collect()  # what the error holds: later tests count descriptors


async def test_a_front_end_that_is_lost_leaves_no_arena_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory must be free at once: a collection of cycles may be minutes away."""
    monkeypatch.setattr(worker_server, "PAUSE", 0.0)
    host, arena, job, idle = WorkerServer(), Arena.create(PAGE), fake_job(), worker()
    monkeypatch.setattr(idle, "_alive", True)  # without threads: each job waits
    telling = asyncio.create_task(host._keep_telling())
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    gc.disable()
    try:
        socket.send_fds(ours, [b"a"], [arena.fd])
        arena.close()
        await host._admit(theirs, idle, WELCOME)
        (lost,) = map(weakref.ref, host._sessions)
        slot, operation = ArenaSlot(0, 1), encode_operation(job.operation)
        jobs = [Submit(n, slot, (1, 1, 1), operation, 1e9, job.lane) for n in range(3)]
        body = ENCODER.encode(jobs)
        ours.sendall(len(body).to_bytes(4, "little") + body)
        await wait_until(lambda: idle.load().queued_jobs == 3)
        ours.close()
        await wait_until(lambda: lost() is None)
    finally:
        gc.enable()
        telling.cancel()
