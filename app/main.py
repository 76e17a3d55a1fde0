"""The composition root: builds every part from the settings and connects them.

Only this file of `app`, and `cluster.py` for Ray Serve, choose a backend.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from app.admission import Admission, Limits
from app.admission.clients import ApiKeys
from app.admission.counters import Counters, Rate, Total
from app.decoders.pool import DecoderLimits, DecoderPool
from app.fetch.fetcher import Fetcher
from app.intake.presets import read_presets
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.memory import LEAST, PER_PROCESS, Memory
from app.pipeline.pipeline import Pipeline
from app.routes import catalogue, health, images, inference, jobs, middleware, openapi, page
from app.routes.openapi import PROBLEMS
from app.service import Computing, Service
from app.telemetry.canary import Canary, canary_image, canary_operations
from app.telemetry.collectors import AtScrape, system_collectors
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import exporting_provider, send_last, telemetry_of
from models.domain.backend import Backend, Load
from models.malloc import return_freed_memory
from models.settings import Settings
from models.version import VERSION
from workers.backends.in_process import LocalBackend
from workers.backends.multi_process import ProcessBackend
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


Connect = Callable[[Settings, Metrics, Counters], Awaitable[Executor]]
"""Starts a worker, or connects to workers; the counters are shared by all front ends."""


async def local_executor(
    settings: Settings,
    metrics: Metrics,
    _counters: Counters,
    *,
    weights: bool = True,
    full_batches: bool = False,
) -> Executor:
    """Start a worker in threads of this process, on the first GPU if there is a usable one.

    Without `weights` it only filters. With `full_batches` the scores of an image do not depend on
    the batch that it is part of.
    """
    gpu = 0 if wanted_gpus(settings.gpus) else None
    device = ""

    def observe(batch: Batch, seconds: float) -> None:
        kind, network = kind_of(batch.tickets[0].job.operation)
        metrics.on_batch(kind, network, len(batch.tickets), batch.reason, device, seconds)

    started = await asyncio.to_thread(
        start_worker, settings, observe, weights=weights, gpu=gpu, full_batches=full_batches
    )
    device = started.worker.load().device
    backend = LocalBackend(started.worker, settings.drain_timeout)

    def set_batching(settings: Settings) -> None:
        size, pixels = settings.max_batch_size, settings.max_batch_pixels
        started.worker.set_batching(size, pixels, settings.max_queue_delay)

    return Executor(backend, lambda: started, True, set_batching=set_batching)


async def remote_executor(
    settings: Settings,
    metrics: Metrics,
    counters: Counters,
    *,
    addresses: Sequence[str],
    patience: float,
) -> Executor:
    """Connect to workers in other processes at the addresses of their Unix sockets.

    Wait until a worker answers, and then at most `patience` seconds for all.
    """
    pixels = max(settings.max_pixels, PIXELS_IN_FLIGHT // counters.front_ends)
    backend = ProcessBackend(
        addresses,
        BYTES_PER_PIXEL * pixels,
        counters,
        settings.drain_timeout,
        lambda b: metrics.on_batch(b.operation, b.network, b.size, b.reason, b.device, b.seconds),
    )
    try:
        await backend.welcome(patience)
    except BaseException:  # the links and the arena must not outlive a start that is cancelled
        await backend.aclose()
        raise
    return Executor(backend, lambda: backend.current, loads=backend.loads)


def admission_for(settings: Settings, counters: Counters, executor: Executor) -> Admission:
    """Return the admission for images that keep a device busy.

    That is a batch on a GPU. On a CPU it is an image to decode and an image to compute for each
    core, and a core is left free for other clients beside a bulk client. A client alone may have
    two batches for each core: a batch to compute and a batch to follow it.
    """
    limits, rate = Limits.from_settings(settings), Rate.parse(settings.rate_limit)
    if executor.watch_busy is not None:
        admission = Admission(limits, counters, 1, 1, speed=REPLICA, rate=rate)
        executor.watch_busy(admission.line.set_images)
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


async def start_service(
    settings: Settings,
    metrics: Metrics,
    connect: Connect = local_executor,
    counters: Counters | None = None,
    *,
    private: bool = False,
) -> Service:
    """Build every part, innermost first, and the jobs if there is a folder for them.

    `connect` and `counters` are those of `create_app`. ValueError says which setting is wrong.
    """
    counters = counters or Counters()
    async with AsyncExitStack() as started:  # a failure below stops what has been started
        threads = cores(settings)
        bounds = DecoderLimits.from_settings(settings, threads)
        budget = max(LEAST, PER_PROCESS * counters.front_ends * (bounds.processes or threads))
        memory = Memory(budget, counters, return_freed_memory)
        decoders = DecoderPool(bounds, lambda reason: metrics.decoder_ends.labels(reason).inc())
        started.push_async_callback(decoders.aclose)
        # A decoder process starts beside the worker, but for a private server when it needs it.
        first = asyncio.create_task(asyncio.sleep(0) if private else decoders.start())
        started.callback(first.cancel)
        executor = await connect(settings, metrics, counters)
        started.push_async_callback(executor.backend.aclose)
        await first
        fetcher = Fetcher.from_settings(
            settings,
            lambda outcome, seconds: metrics.fetches.labels(outcome).observe(seconds),
            counters,
        )
        started.push_async_callback(fetcher.aclose)
        backend, computing = executor.backend, executor.computing
        admission = admission_for(settings, counters, executor)
        files = EncodedFiles(settings.max_bytes_in_flight, counters=counters)
        known = None
        if settings.result_cache:
            from app.pipeline.known_results import KnownResults

            known = KnownResults(settings.result_cache, computing, files, metrics)
        pixels = settings.max_pixels
        pipeline = Pipeline(
            backend, fetcher, metrics, memory, decoders, files, known, pixels, threads
        )
        started.callback(pipeline.close)

        def limits() -> dict[str, tuple[int, Total]]:
            return {
                "images_in_flight": (admission.limits.images, Total.IMAGES),
                "bytes_in_flight": (admission.limits.bytes, Total.BYTES),
                "arriving_bytes": (admission.limits.arriving, Total.ARRIVING),
                "image_memory": (memory.budget.total, Total.MEMORY),
                "unread_bytes": (files.limit, Total.UNREAD),
                "fetch_concurrency": (fetcher.turns.total, Total.FETCHES),
            }

        metrics.now = AtScrape(
            backend.load,
            admission,
            limits,
            lambda: computing().networks,
            lambda: computing().degraded,
            executor.devices,
        )
        metrics.system = [*system_collectors(wanted_gpus(settings.gpus) > 0)]
        operations = canary_operations(computing().networks)
        service = Service(
            settings=settings,
            presets=read_presets(settings.presets),
            backend=backend,
            pipeline=pipeline,
            decoders=decoders,
            fetcher=fetcher,
            admission=admission,
            metrics=metrics,
            canary=Canary(backend, operations, canary_image(), settings.canary_interval),
            computing=computing,
            keys=ApiKeys(settings.api_keys_file) if settings.api_keys_file else None,
            set_batching=executor.set_batching,
            ends_with_worker=executor.is_here,
        )
        if settings.data_folder is not None:
            await _start_jobs(service, settings.data_folder, started)
        started.pop_all()
    return service


async def _start_jobs(service: Service, data_folder: Path, started: AsyncExitStack) -> None:
    """Let a service work on the jobs of its data folder.

    SQLAlchemy is imported here and not before, so that other servers do not wait for it.
    """
    from app.jobs.files import DataFolder
    from app.jobs.jobs import Jobs
    from app.jobs.runner import ImageWorker
    from app.jobs.store import Database

    settings, storage = service.settings, service.fetcher.storage
    folder = DataFolder(data_folder)
    await asyncio.to_thread(folder.make)
    database = await asyncio.to_thread(Database, settings.jobs_database, data_folder)
    started.callback(database.close)
    service.jobs = Jobs(
        settings,
        database,
        folder,
        storage,
        ImageWorker(service.pipeline, service.admission, storage, settings),
        jobs.work_of(service),
        job_images(settings, service.admission.counters.front_ends),
        service.admission.counters,
        service.stopping.is_set,
        lambda outcome: service.metrics.job_items.labels(outcome).inc(),
    )
    service.jobs.on_states = service.metrics.on_jobs
    await service.jobs.start()


async def stop_service(service: Service) -> None:
    """Refuse new work, finish the accepted work, and stop the threads."""
    service.stopping.set()
    await asyncio.gather(*service.ending)
    if service.jobs is not None:
        await service.jobs.aclose()
    service.admission.draining = True
    await service.backend.aclose()
    await service.fetcher.aclose()
    await service.decoders.aclose()
    service.pipeline.close()
    service.metrics.flush()


def create_app(
    settings: Settings,
    connect: Connect = local_executor,
    counters: Counters | None = None,
    *,
    private: bool = False,
) -> FastAPI:
    """Return the ASGI application; its parts live from startup to shutdown.

    `connect` chooses what computes. `counters` hold the counts that all front ends share, and with
    them the limits. No client but one command uses a `private` server, which has no canary.
    """
    metrics = Metrics()
    traces = exporting_provider() if settings.tracing else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await start_service(settings, metrics, connect, counters, private=private)
        app.state.service = service
        if traces is not None:
            from app.pipeline.spans import Spans

            service.pipeline.spans = Spans(traces)
        async with AsyncExitStack() as ending:
            ending.push_async_callback(send_last, traces)
            ending.push_async_callback(stop_service, service)
            if not private:
                await service.canary.probe()
                probing = asyncio.create_task(service.canary.keep_probing())
                ending.callback(probing.cancel)
            yield

    app = FastAPI(
        title="Darkroom",
        summary="Labels and filtered images, one answer for every image.",
        version=VERSION,
        lifespan=lifespan,
        responses=PROBLEMS,
        telemetry=telemetry_of(traces),
        openapi_url=None,  # `routes/openapi.py` serves it, made once
        docs_url=None,  # FastAPI's pages load scripts from a CDN; the page does not
    )
    for each in (images, jobs, catalogue, health, openapi, page, inference):
        app.include_router(each.router)
    middleware.install(app, images.router, settings, metrics)
    return app
