"""How many jobs a second the micro-batcher, the worker's two threads and LocalBackend carry.

Method: the process is pinned to one core; 512 coroutines run one job after another through
`LocalBackend.run` with an engine that answers at once, so only our own work is timed. A round trip
of a bare asyncio future, resolved by another thread for each job, is timed in the same run for
comparison. Run: python -m tests.bench.batcher
"""

import asyncio
import json
import os
import threading
import time
from queue import SimpleQueue

import numpy as np

from models.deadline import Deadline
from models.image import Image
from models.job import Job
from tests.fakes import FakeEngine, FakeOperation
from workers.batcher import BatchLimits
from workers.local import LocalBackend
from workers.worker import Worker

CLIENTS = 512
SECONDS = 5.0


async def through_backend() -> float:
    """Jobs per second."""
    worker = Worker(FakeEngine(slots=3), BatchLimits(64, 1 << 40))
    worker.start()
    backend = LocalBackend(worker)
    image = Image(np.zeros((8, 8, 3), np.uint8))
    done = 0
    end = time.perf_counter() + SECONDS

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            deadline = Deadline.after(30.0, time.monotonic())
            await backend.run(Job(FakeOperation("a"), image, deadline))
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = done / (time.perf_counter() - start)
    await backend.aclose()
    return rate


async def bare_futures() -> float:
    """Round trips of a future per second: the same threads hop, without batches."""
    loop = asyncio.get_running_loop()
    asked: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def answer() -> None:
        while (waiter := asked.get()) is not None:
            loop.call_soon_threadsafe(waiter.set_result, None)

    thread = threading.Thread(target=answer)
    thread.start()
    done = 0
    end = time.perf_counter() + SECONDS

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            waiter: asyncio.Future[None] = loop.create_future()
            asked.put(waiter)
            await waiter
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = done / (time.perf_counter() - start)
    asked.put(None)
    thread.join()
    return rate


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    futures = asyncio.run(bare_futures())
    jobs = asyncio.run(through_backend())
    print(f"bare futures: {futures:,.0f}/s; jobs through LocalBackend: {jobs:,.0f}/s")
    print(
        json.dumps(
            {
                "benchmark": "batcher",
                "command": "python -m tests.bench.batcher",
                "cores": 1,
                "jobs_per_second": round(jobs),
                "bare_futures_per_second": round(futures),
                "ratio": round(jobs / futures, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
