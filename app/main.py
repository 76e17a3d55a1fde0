"""The composition root: builds every part from the settings and connects them.

Besides `executors.py` only this file of `app` chooses a backend.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from opentelemetry.trace import TracerProvider

from app.admission.clients import ApiKeys
from app.admission.counters import Counters, Total
from app.decoders import DecoderLimits, DecoderPool
from app.executors import (
    NONE,
    Workers,
    admission_for,
    image_memory,
    job_images,
    local_executor,
    remote_executor,
)
from app.fetch.fetcher import Fetcher
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.pipeline import Pipeline
from app.routes import catalogue, health, images, inference, jobs, middleware, openapi, page
from app.routes.openapi import PROBLEMS
from app.service import Service
from app.telemetry.canary import Canary, canary_image, canary_operations
from app.telemetry.collectors import AtScrape, system_collectors
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import exporting_provider, send_last, telemetry_of
from models.settings import Settings
from models.version import VERSION
from workers.supervision.gpu_discovery import wanted_gpus
from workers.supervision.startup import cores


@dataclass(frozen=True, slots=True)
class Private:
    """The work of a server of one command: no other client uses it, so it has no warm-up.

    Without `weights` it only filters. With `full_batches` the scores of an image do not depend on
    the batch that it is part of.
    """

    weights: bool
    full_batches: bool


async def start_service(
    settings: Settings,
    metrics: Metrics,
    workers: Workers = NONE,
    counters: Counters | None = None,
    private: Private | None = None,
) -> Service:
    """Build every part, innermost first, and the jobs if there is a folder for them.

    `workers` are other processes; without any, the worker is in this one. `counters` are shared by
    front ends, and so are the limits. ValueError says which setting is wrong.
    """
    counters, given = counters or Counters(), private or Private(weights=True, full_batches=False)
    async with AsyncExitStack() as started:  # a failure below stops what has been started
        memory = image_memory(settings, counters)
        bounds = DecoderLimits.from_settings(settings, cores(settings))
        decoders = DecoderPool(bounds, lambda reason: metrics.decoder_ends.labels(reason).inc())
        started.push_async_callback(decoders.aclose)
        # A decoder process starts beside the worker, but for a private server when it needs it.
        first = asyncio.create_task(asyncio.sleep(0) if private else decoders.start())
        started.callback(first.cancel)
        executor = await (
            workers.connect(settings)
            if workers.connect
            else remote_executor(settings, metrics, workers, counters)
            if workers.addresses
            else local_executor(settings, metrics, given.weights, given.full_batches)
        )
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
        pixels, threads = settings.max_pixels, cores(settings)
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
                "fetch_concurrency": (fetcher.concurrency(), Total.FETCHES),
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
        jobs.work_of(service.computing),
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
    workers: Workers = NONE,
    counters: Counters | None = None,
    traces: TracerProvider | None = None,
    private: Private | None = None,
) -> FastAPI:
    """Return the ASGI application; its parts live from startup to shutdown.

    With `workers` it is a front end, and these compute. `counters` hold the counts that all front
    ends share. `traces` receives spans in place of an exporter. A `private` server is that
    of one command.
    """
    metrics = Metrics()
    traces = traces or (exporting_provider() if settings.tracing else None)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await start_service(settings, metrics, workers, counters, private)
        app.state.service = service
        if traces is not None:
            from app.pipeline.spans import Spans

            service.pipeline.spans = Spans(traces)
        async with AsyncExitStack() as ending:
            ending.push_async_callback(send_last, traces)
            ending.push_async_callback(stop_service, service)
            if private is None:
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
