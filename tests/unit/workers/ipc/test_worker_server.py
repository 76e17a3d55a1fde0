"""A worker's server and front ends that come at the wrong moment."""

import asyncio
import gc
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
