"""The composition root: builds every part from the settings and connects them.

Besides `executors.py` only this file of `app` chooses a backend.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI
from opentelemetry.trace import TracerProvider
from prometheus_client.registry import Collector

from app.admission.clients import ApiKeys
from app.admission.counters import Counters
from app.admission.permits import Usage
from app.decoders import DecoderLimits, DecoderPool
from app.executors import (
    NONE,
    Executor,
    Workers,
    admission_for,
    image_memory,
    local_executor,
    remote_executor,
)
from app.fetch.fetcher import Fetcher
from app.http import problems
from app.job_start import start_jobs
from app.pipeline.memory import Memory
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.encoded_files import EncodedFiles
from app.routes import catalogue, health, images, inference, jobs, middleware, openapi, page
from app.routes.openapi import PROBLEMS
from app.service import Service
from app.telemetry.canary import Canary, canary_image, canary_operations
from app.telemetry.collectors import AtScrape, system_collectors
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import exporting_provider, sending, telemetry_of
from models.api.schemas import ModelRecord
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
    weights: bool = True,
    workers: Workers = NONE,
    counters: Counters | None = None,
    *,
    ahead: bool = False,
    full_batches: bool = False,
) -> Service:
    """Build every part, innermost first; without `weights` it only filters.

    `workers` are other processes; without any, the worker is in this one. `counters` are shared by
    front ends, and so are the limits. With `ahead` a decoder process is started beside the worker,
    before the first image needs it. With `full_batches` the scores that a worker in this process
    gives do not depend on batches.
    """
    counters = counters or Counters()
    async with AsyncExitStack() as started:  # a failure below stops what has been started
        memory = image_memory(settings, counters)
        limits = DecoderLimits.from_settings(settings, cores(settings))
        decoders = DecoderPool(limits, metrics.on_decoder_end)
        started.push_async_callback(decoders.aclose)
        first = asyncio.create_task(decoders.start() if ahead else asyncio.sleep(0))
        started.callback(first.cancel)
        executor = await (
            workers.connect(settings)
            if workers.connect
            else remote_executor(settings, metrics, workers, counters)
            if workers.addresses
            else local_executor(settings, metrics, weights, full_batches)
        )
        started.push_async_callback(executor.backend.aclose)
        await first
        service = _assembled(started, settings, metrics, (executor, decoders, memory), counters)
        started.pop_all()
    return service


def _assembled(
    started: AsyncExitStack,
    settings: Settings,
    metrics: Metrics,
    parts: tuple[Executor, DecoderPool, Memory],
    counters: Counters,
) -> Service:
    """Put the parts around a started backend; `started` learns what must be stopped again."""
    executor, decoders, memory = parts
    fetcher = Fetcher.from_settings(settings, metrics.on_fetch, counters)
    started.push_async_callback(fetcher.aclose)
    admission = admission_for(settings, counters, executor)
    files = EncodedFiles(settings.max_bytes_in_flight, counters=counters)
    usage = Usage(admission, fetcher.concurrency, memory.limit, files.limit)
    metrics.watch(
        [_at_scrape(executor, usage)], [*system_collectors(wanted_gpus(settings.gpus) > 0)]
    )
    known = None
    if settings.result_cache:
        from app.pipeline.results.known_results import KnownResults

        known = KnownResults(settings.result_cache, executor.computing, files, metrics)
    backend, pixels, threads = executor.backend, settings.max_pixels, cores(settings)
    pipeline = Pipeline(backend, fetcher, metrics, memory, decoders, files, known, pixels, threads)
    started.callback(pipeline.close)
    return Service(
        settings=settings,
        backend=backend,
        pipeline=pipeline,
        decoders=decoders,
        fetcher=fetcher,
        admission=admission,
        metrics=metrics,
        canary=_canary(executor, settings),
        computing=executor.computing,
        keys=ApiKeys(settings.api_keys_file) if settings.api_keys_file else None,
        counters=counters,
        set_batching=executor.set_batching,
        ends_with_worker=executor.is_here,
    )


def _canary(executor: Executor, settings: Settings) -> Canary:
    operations = canary_operations(executor.computing().networks)
    return Canary(executor.backend, operations, canary_image(), settings.canary_interval)


def _at_scrape(source: Executor, usage: Usage) -> Collector:
    """Return what reads the state of this process when metrics are requested."""
    load, devices = source.backend.load, source.devices

    def models() -> Iterator[ModelRecord]:
        return (each.model.record for each in source.computing().networks if each.model is not None)

    return AtScrape(load, usage, models, lambda: source.computing().degraded, devices)


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
    service.metrics.observations.flush()


@asynccontextmanager
async def _serving(
    service: Service, traces: TracerProvider | None, *, probes: bool
) -> AsyncIterator[None]:
    """Probe with the canary while the block runs; stop all parts at its end, however it ends."""
    if traces is not None:
        from app.pipeline.results.spans import Spans

        service.pipeline.spans = Spans(traces)
    try:
        if not probes:
            yield
            return
        await service.canary.probe()
        probing = asyncio.create_task(service.canary.keep_probing())
        yield
        probing.cancel()
    finally:
        await stop_service(service)


async def _started(app: FastAPI, starting: Coroutine[None, None, Service]) -> Service:
    """Return the started service with its jobs.

    The fault of wrong settings is noted, because the next start would fail with them too.
    """
    try:
        return await start_jobs(await starting, stop_service)
    except ValueError as error:
        app.state.wrong_settings = str(error)
        raise


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
        given = private or Private(weights=True, full_batches=False)
        starting = start_service(
            settings,
            metrics,
            given.weights,
            workers,
            counters,
            ahead=private is None,
            full_batches=given.full_batches,
        )
        service = app.state.service = await _started(app, starting)
        async with sending(traces), _serving(service, traces, probes=private is None):
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
    _install_routes(app, settings, metrics)
    return app


def _install_routes(app: FastAPI, settings: Settings, metrics: Metrics) -> None:
    """Add the routes, the conversion of errors to problems, and the middleware."""
    for each in (images, jobs, catalogue, health, openapi, page, inference):
        app.include_router(each.router)
    problems.install(app)
    middleware.install(app, images.router, settings, metrics)
