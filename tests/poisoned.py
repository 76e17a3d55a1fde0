"""A worker process for tests in which some numbers raise, exhaust memory, or end the process."""

import asyncio
import os
import socket
import sys

from models.domain.errors import ServiceError
from models.domain.job import Job, Result
from tests.fakes import FakeEngine, first_sample, number_of
from tests.worker_fixture import WELCOME
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

RAISES, EATS_MEMORY, EXITS = 251, 252, 253


def answer(job: Job) -> Result | ServiceError:
    """Return or raise the outcome of a job, by its number."""
    match number_of(job):
        case 251:
            raise RuntimeError("secret internal text")
        case 252:
            bytearray(1 << 62)  # MemoryError
        case 253:
            os._exit(9)
    return first_sample(job)


async def main(address: str) -> None:
    """Serve front ends at an abstract address until the process is killed."""
    host = WorkerServer()
    limits = BatchLimits(max_batch_size=8, max_batch_pixels=1 << 30)
    worker = Worker(FakeEngine(answer=answer), limits, on_batch=host.on_batch)
    worker.start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        await host.serve(listener, worker, WELCOME)


if __name__ == "__main__":
    asyncio.run(main("\0" + sys.argv[1]))
