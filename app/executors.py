"""Executors: the worker that computes for a server, in this process or in other processes.

This module is part of the composition root; `app.main` puts the other parts around it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.admission import Admission, Limits
from app.admission.counters import Counters, Rate
from app.decoders import DecoderLimits
from app.pipeline.memory import Memory, budget_for
from app.service import Computing
from app.telemetry.metrics import Metrics
from models.domain.backend import Backend, Load
from models.malloc import return_freed_memory
from models.settings import Settings
from workers.backends.in_process import LocalBackend
from workers.backends.multi_process import ProcessBackend
from workers.ipc.frames import Batched, Welcome
from workers.operations import kind_of
from workers.scheduling.batch import Batch
from workers.supervision.gpu_discovery import uuid_of, wanted_gpus
from workers.supervision.startup import CPU_BATCH, GPU_BATCH, cores, start_worker

BYTES_PER_PIXEL = 4
"""Bytes for each pixel in the shared memory through which images go to worker processes."""

GPU, REPLICA = 50.0, 10.0
"""Times as fast as one core that a GPU, and a replica of a cluster that may have a GPU, is expected
to be until it was measured."""

PIXELS_IN_FLIGHT = 200_000_000
"""Pixels, over all front ends, for which there is room in that shared memory."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A started backend, and the networks that it classifies with."""

    backend: Backend
    computing: Callable[[], Computing]
    is_here: bool = False
    """Whether the worker is in this process."""
    set_batching: Callable[[Settings], None] = lambda _settings: None
    loads: Callable[[], Sequence[Load]] | None = None
    """Return the load of each device; None if the backend has one device."""
    watch_busy: Callable[[Callable[[int, int], None]], None] | None = None
    """Call this with what learns how many images keep all workers busy, now and whenever workers
    come or go, and how many fill their batches. None if the workers stay the same."""

    def devices(self) -> list[tuple[Load, str]]:
        """Return the load of each device, with the UUID of a GPU."""
        loads = [self.backend.load()] if self.loads is None else self.loads()
        return [(each, uuid_of(each.device)) for each in loads]


@dataclass(frozen=True, slots=True)
class Workers:
    """Unix sockets of worker processes.

    `patience` is the seconds in which all workers are waited for once one of them has answered.
    `connect` connects to workers on other hosts in place of these processes.
    """

    addresses: Sequence[str] = ()
    patience: float = 0.0
    connect: "Callable[[Settings], Awaitable[Executor]] | None" = None


NONE = Workers()


async def local_executor(
    settings: Settings, metrics: Metrics, weights: bool, full_batches: bool
) -> Executor:
    """Start a worker in threads of this process, on the first GPU if there is a usable one.

    With `full_batches` the scores of an image do not depend on the batch that it is part of.
    """
    gpu = 0 if wanted_gpus(settings.gpus) else None
    observer = _Observer(metrics)
    started = await asyncio.to_thread(
        start_worker, settings, observer, weights=weights, gpu=gpu, full_batches=full_batches
    )
    observer.device = started.worker.load().device
    computing = Computing(started.networks, started.degraded)
    backend = LocalBackend(started.worker, settings.drain_timeout)

    def set_batching(settings: Settings) -> None:
        size, pixels = settings.max_batch_size, settings.max_batch_pixels
        started.worker.set_batching(size, pixels, settings.max_queue_delay)

    return Executor(backend, lambda: computing, True, set_batching=set_batching)


async def remote_executor(
    settings: Settings,
    metrics: Metrics,
    workers: Workers,
    counters: Counters,
) -> Executor:
    """Connect to workers in other processes; wait until one answers, and for all with patience."""
    pixels = max(settings.max_pixels, PIXELS_IN_FLIGHT // counters.front_ends)

    backend = ProcessBackend(
        workers.addresses,
        BYTES_PER_PIXEL * pixels,
        counters,
        settings.drain_timeout,
        _counted(metrics),
    )
    try:
        welcome = await backend.welcome(workers.patience)
    except BaseException:  # the links and the arena must not outlive a start that is cancelled
        await backend.aclose()
        raise
    known = welcome, _computing(welcome)

    def computing() -> Computing:
        nonlocal known
        if known[0] is not backend.current:
            known = backend.current, _computing(backend.current)
        return known[1]

    return Executor(backend, computing, loads=backend.loads)


def admission_for(settings: Settings, counters: Counters, executor: Executor) -> Admission:
    """Return the admission for images that keep a device busy.

    That is a batch on a GPU. On a CPU it is an image to decode and an image to compute for each
    core, and a core is left free for other clients beside a bulk client. A client alone may have
    two batches for each core: a batch to compute and a batch to follow it.
    """
    limits, rate = Limits.from_settings(settings), Rate.parse(settings.rate_limit)
    if executor.watch_busy is not None:
        admission = Admission(limits, counters, 1, 1, speed=REPLICA, rate=rate)
        executor.watch_busy(admission.set_busy_images)
        return admission
    if gpus := wanted_gpus(settings.gpus):
        size = settings.max_batch_size or GPU_BATCH
        return Admission(limits, counters, gpus, size, speed=GPU, rate=rate)
    n = cores(settings)
    alone = 2 * n * (settings.max_batch_size or CPU_BATCH) // counters.front_ends
    bulk = max(1, n - 1)
    return Admission(limits, counters, n, 2 * n, most_bulk=bulk, alone=alone, rate=rate)


def job_images(settings: Settings, front_ends: int) -> int:
    """Return the images of jobs that a process works on at a time.

    All processes together have two full batches for each core or GPU, so that the device has work
    while records are written.
    """
    if wanted_gpus(settings.gpus):
        return 2 * (settings.max_batch_size or GPU_BATCH)
    busy = 2 * cores(settings) * (settings.max_batch_size or CPU_BATCH)
    return max(4, busy // front_ends)


def image_memory(settings: Settings, counters: Counters) -> Memory:
    """Return the memory that the images of all front ends together may take."""
    threads = cores(settings)
    processes = DecoderLimits.from_settings(settings, threads).processes or threads
    limit = budget_for(counters.front_ends * processes)
    return Memory(limit, counters, return_freed_memory)


def _computing(welcome: Welcome) -> Computing:
    return Computing(welcome.networks, welcome.degraded)


def _counted(metrics: Metrics) -> Callable[[Batched], None]:
    def count(b: Batched) -> None:
        metrics.on_batch(b.operation, b.network, b.size, b.reason, b.device, b.seconds)

    return count


class _Observer:
    """Observer of a worker in this process, which counts its batches on `device`."""

    def __init__(self, metrics: Metrics) -> None:
        self.device = ""
        self._metrics = metrics

    def __call__(self, batch: Batch, seconds: float) -> None:
        kind, network = kind_of(batch.tickets[0].job.operation)
        size = len(batch.tickets)
        self._metrics.on_batch(kind, network, size, batch.reason, self.device, seconds)
