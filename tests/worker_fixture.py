"""A worker behind a socket, as in a separate process, but on a thread of this one."""

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from models.networks.served import ServedNetwork
from tests.fakes import GUARD, FakeEngine, FakeSlot, Gate
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

ARENA = 1 << 20
"""Bytes of an arena."""

WELCOME = Welcome("fake", (ServedNetwork("resnet18", problem="a fake has no weights"),))


class CountingWorker(Worker[FakeSlot]):
    """A worker that counts the jobs which were submitted to it."""

    submitted = 0

    def submit(self, *arguments: Any, **named: Any) -> Ticket:
        """Count the job and submit it."""
        self.submitted += 1
        return super().submit(*arguments, **named)


async def wait_until(claim: Callable[[], bool]) -> None:
    """Wait until the claim holds: the state of another process becomes known a moment later."""
    async with asyncio.timeout(GUARD):
        while not claim():  # noqa: ASYNC110 (the other side has no event to wait for)
            await asyncio.sleep(0.001)


@dataclass(frozen=True)
class RunningWorker:
    """A worker that front ends can reach, and the gate of its device."""

    address: str
    host: WorkerServer
    worker: CountingWorker
    engine: FakeEngine
    gate: Gate


@contextmanager
def running_worker(
    engine: Callable[..., FakeEngine],
    limits: BatchLimits,
    address: str | None = None,
    welcome: Welcome = WELCOME,
) -> Iterator[RunningWorker]:
    """Run a worker at an abstract address; it and its connections end with the block."""
    address = address or f"\0darkroom-test-{secrets.token_hex(8)}"
    gate, host = Gate(is_open=True), WorkerServer()
    made = engine(on_collect=gate)
    worker = CountingWorker(made, limits, on_batch=host.on_batch)
    worker.start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        loop = asyncio.new_event_loop()
        serving = loop.create_task(host.serve(listener, worker, welcome))
        thread = threading.Thread(target=_run, args=(loop, serving))
        thread.start()
        try:
            yield RunningWorker(address, host, worker, made, gate)
        finally:
            for session in [*host._sessions]:  # a process that was killed marks no job as finished
                for ticket in [*session._tickets.values()]:
                    ticket.on_device = None
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
            gate.open()
            worker.stop()
            loop.close()


def _run(loop: asyncio.AbstractEventLoop, serving: "asyncio.Task[None]") -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
