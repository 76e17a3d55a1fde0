"""What one image costs a front end and a worker process in words and copies, nothing computed.

Method: a child process hosts a worker whose engine answers at once; this process is the front end.
512 coroutines run classify jobs of a 64 kB image, one after another, for five seconds; the CPU
seconds of each process, divided by its jobs, are what a core can carry at most. uvloop, as in the
server. Run: python -m tests.bench.processes
"""

import asyncio
import json
import os
import resource
import secrets
import socket
import time
from datetime import UTC, datetime

import numpy as np
import uvloop

from models.domain.deadline import Deadline
from models.domain.image import Image
from models.domain.job import Job
from tests.fakes import FakeEngine
from workers.backends.multi_process import ProcessBackend
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.operations import Classify
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

CLIENTS = 512
SECONDS = 5.0
SHAPE = (128, 170, 3)


def cpu(who: int) -> float:
    """Return the CPU seconds so far."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def host(listener: socket.socket, stop: int) -> None:
    """Serve until the pipe closes."""
    worker = Worker(FakeEngine(slots=3), BatchLimits(64, 1 << 40))
    worker.start()
    serving = asyncio.create_task(WorkerServer().serve(listener, worker, Welcome("fake", [])))
    await asyncio.to_thread(os.read, stop, 1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    worker.stop()


async def drive(address: str) -> tuple[int, float]:
    """Return the number of jobs done, and the CPU seconds of this process."""
    backend = ProcessBackend([address], 1 << 28)
    await backend.welcome()
    image = Image(np.zeros(SHAPE, np.uint8))
    done, before, end = 0, cpu(resource.RUSAGE_SELF), time.perf_counter() + SECONDS

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await backend.run(Job(Classify(), image, Deadline.after(30, time.monotonic())))
            done += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    used = cpu(resource.RUSAGE_SELF) - before
    await backend.aclose()
    return done, used


def main() -> None:
    """Run the command line."""
    address = f"\0darkroom-bench-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    stop, stopping = os.pipe()
    child = os.fork()
    if not child:
        os.close(stopping)
        uvloop.run(host(listener, stop))
        os._exit(0)
    start = time.perf_counter()
    jobs, front_end = uvloop.run(drive(address))
    seconds = time.perf_counter() - start
    os.close(stopping)
    os.waitpid(child, 0)
    worker = cpu(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "benchmark": "processes",
                "command": "python -m tests.bench.processes",
                "date": datetime.now(UTC).date().isoformat(),
                "cores": len(os.sched_getaffinity(0)),
                "image_bytes": int(np.prod(SHAPE)),
                "jobs_per_second": round(jobs / seconds),
                "front_end_us_per_job": round(front_end / jobs * 1e6, 1),
                "worker_us_per_job": round(worker / jobs * 1e6, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
