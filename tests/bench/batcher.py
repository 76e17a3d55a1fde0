"""How many jobs a second the micro-batcher, the worker's two threads and LocalBackend carry.

Method: the process is pinned to one core; 512 coroutines run one job after another through
`LocalBackend.run` with an engine that answers at once, so only our own work is timed. The yardstick
is a bare asyncio future that another thread resolves, one hop for each job and no batches. Both
take turns of 2.5 seconds; the medians of three count. Run: python -m tests.bench.batcher
"""

import asyncio
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from queue import SimpleQueue

import numpy as np

from models.domain.deadline import Deadline
from models.domain.image import Image
from models.domain.job import Job
from tests.fakes import FakeEngine, FakeOperation
from workers.backends.in_process import LocalBackend
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

CLIENTS = 512
MAX_BATCH_SIZE = 64
ROUNDS = 3
SECONDS = 2.5


async def closed_loop(step: Callable[[], Awaitable[object]]) -> float:
    """Return the steps per second of `CLIENTS` coroutines, each taking one step after another."""
    done = 0
    start = time.perf_counter()
    end = start + SECONDS

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await step()
            done += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return done / (time.perf_counter() - start)


async def through_backend() -> float:
    """Return the jobs per second through a backend, each with a deadline of its own."""
    worker = Worker(FakeEngine(slots=3), BatchLimits(MAX_BATCH_SIZE, 1 << 40))
    worker.start()
    backend = LocalBackend(worker)
    image = Image(np.zeros((8, 8, 3), np.uint8))

    def step() -> Awaitable[object]:
        deadline = Deadline.after(30.0, time.monotonic())
        return backend.run(Job(FakeOperation("a"), image, deadline))

    rate = await closed_loop(step)
    await backend.aclose()
    return rate


async def bare_futures() -> float:
    """Return the futures per second that a thread resolves one by one."""
    loop = asyncio.get_running_loop()
    asked: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def answer() -> None:
        while (waiter := asked.get()) is not None:
            loop.call_soon_threadsafe(waiter.set_result, None)

    def step() -> Awaitable[object]:
        waiter: asyncio.Future[None] = loop.create_future()
        asked.put(waiter)
        return waiter

    thread = threading.Thread(target=answer)
    thread.start()
    rate = await closed_loop(step)
    asked.put(None)
    thread.join()
    return rate


def main() -> None:
    """Measure both rates in turns, and print them as JSON on the last line."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    futures, jobs = [], []
    print("round   bare futures/s   jobs/s through LocalBackend")
    for turn in range(ROUNDS):
        futures.append(asyncio.run(bare_futures()))
        jobs.append(asyncio.run(through_backend()))
        print(f"{turn + 1:>5}{futures[-1]:>17,.0f}{jobs[-1]:>30,.0f}")
    future_rate, job_rate = statistics.median(futures), statistics.median(jobs)
    report = {
        "benchmark": "batcher",
        "command": "python -m tests.bench.batcher",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "cores": 1,
        "clients": CLIENTS,
        "max_batch_size": MAX_BATCH_SIZE,
        "jobs_per_second": round(job_rate),
        "jobs_per_second_lowest": round(min(jobs)),
        "bare_futures_per_second": round(future_rate),
        "ratio": round(job_rate / future_rate, 3),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
