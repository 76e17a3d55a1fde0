"""A worker behind a socket, as in a process of its own, but on a thread of this one."""

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from models.domain.job import Operation
from tests.fakes import GUARD, FakeEngine, FakeOperation, Gate
from workers.ipc.encoded_network import EncodedNetwork
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

ARENA = 1 << 20
"""Bytes."""

WELCOME = Welcome("fake", [EncodedNetwork("resnet18", problem="a fake has no weights")])


def fake_said(operation: Operation) -> object:
    """The wire form of a fake operation."""
    return operation.batch_key


def fake_heard(said: object) -> Operation:
    """And back."""
    return FakeOperation(str(said))


async def come_true(claim: Callable[[], bool]) -> None:
    """Until the claim holds: what is known of another process changes a moment later."""
    async with asyncio.timeout(GUARD):
        while not claim():  # noqa: ASYNC110 (the other side has no event to wait for)
            await asyncio.sleep(0.001)


@dataclass(frozen=True)
class Hosted:
    """A worker that front ends can reach, and a hand on its device."""

    address: str
    host: WorkerServer
    worker: Worker[object]
    engine: FakeEngine
    gate: Gate


@contextmanager
def hosted(
    engine: Callable[..., FakeEngine],
    limits: BatchLimits,
    address: str | None = None,
    welcome: Welcome = WELCOME,
) -> Iterator[Hosted]:
    """A worker at an abstract address; gone, with all its connections, when the block ends."""
    address = address or f"\0darkroom-test-{secrets.token_hex(8)}"
    gate, host = Gate(is_open=True), WorkerServer(fake_heard)
    made = engine(on_collect=gate)
    worker = Worker(made, limits, on_batch=host.on_batch)
    worker.start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        loop = asyncio.new_event_loop()
        serving = loop.create_task(host.serve(listener, worker, welcome))
        thread = threading.Thread(target=_run, args=(loop, serving))
        thread.start()
        try:
            yield Hosted(address, host, worker, made, gate)
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
            gate.open()
            worker.stop()
            loop.close()


def _run(loop: asyncio.AbstractEventLoop, serving: "asyncio.Task[None]") -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
