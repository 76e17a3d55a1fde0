"""The composition root: builds every part from the settings and hands it over.

The only file of `app` that picks a backend and reaches into `workers` beyond declarations.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
from fastapi import FastAPI

from app import observe, problems
from app.admission import Admission
from app.admission.counters import Counters
from app.budget import PixelBudget
from app.canary import Canary
from app.decoders import DecoderPool, Limits
from app.documents import PROBLEMS
from app.fetch import Fetcher, FetchLimits
from app.garbage import settle
from app.metrics import Metrics
from app.pipeline import Pipeline
from app.routes import catalogue, classify, docs, filter, health, process
from app.service import Computing, Model, Service
from models.backend import Backend
from models.image import Image
from models.job import Operation, ReleaseReason
from models.labels import LabelSet
from models.schemas import ModelRecord
from models.settings import Settings
from models.version import VERSION
from workers.batch import Batch
from workers.devices import wanted_gpus
from workers.engine import BatchResult
from workers.filters import parse_one
from workers.local import LocalBackend
from workers.operations import Classify, FilterChain
from workers.processes import ProcessBackend
from workers.start import cores, start_worker
from workers.wire import Batched, Welcome
from workers.worker import Observer

log = logging.getLogger("darkroom.main")

BYTES_PER_PIXEL = 4
"""Of the shared memory through which images go to worker processes."""


LEAST_PIXELS_IN_FLIGHT = 200_000_000
"""Decoded pixels in memory, where the settings say nothing and few front ends share them."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A started backend and what it classifies with."""

    backend: Backend
    computing: Callable[[], Computing]


async def local_executor(settings: Settings, metrics: Metrics, weights: bool) -> Executor:
    """A worker in threads of this process, on the first GPU if there is one to be used."""
    gpu = 0 if wanted_gpus(settings.gpus) else None
    started = await asyncio.to_thread(
        start_worker, settings, _observer(metrics), weights=weights, gpu=gpu
    )
    model = Model(started.record, started.labels) if started.record and started.labels else None
    computing = Computing(model, started.problem, started.degraded)
    backend = LocalBackend(started.worker, settings.drain_timeout)
    return Executor(backend, lambda: computing)


async def remote_executor(
    settings: Settings, metrics: Metrics, addresses: Sequence[str], front_ends: int
) -> Executor:
    """Workers in processes of their own, at Unix sockets; waits until one is there."""
    own_pixels = -(-pixels_in_flight(settings, front_ends) // front_ends)
    arena = BYTES_PER_PIXEL * max(settings.max_pixels, own_pixels)

    def on_batch(batched: Batched) -> None:
        metrics.on_batch(batched.operation, batched.size, ReleaseReason(batched.reason))

    backend = ProcessBackend(
        addresses,
        arena,
        settings.drain_timeout,
        on_batch,
        on_other=lambda: signal.raise_signal(signal.SIGTERM),
    )
    await backend.welcome()
    known: dict[int, Computing] = {}

    def computing() -> Computing:
        welcome = backend.current
        if id(welcome) not in known:
            known.clear()
            known[id(welcome)] = _computing(welcome)
        return known[id(welcome)]

    return Executor(backend, computing)


async def start_service(
    settings: Settings,
    metrics: Metrics,
    weights: bool = True,
    addresses: Sequence[str] = (),
    counters: Counters | None = None,
) -> Service:
    """Build every part, innermost first; without `weights` it only filters.

    `addresses` are those of worker processes; without any, the worker is in this one. `counters`
    are shared by front ends, and so are the limits.
    """
    counters = counters or Counters()
    executor = await (
        remote_executor(settings, metrics, addresses, counters.front_ends)
        if addresses
        else local_executor(settings, metrics, weights)
    )
    backend, model = executor.backend, executor.computing().model
    fetcher = Fetcher(
        FetchLimits.from_settings(settings), observe=metrics.on_fetch, counters=counters
    )
    admission = _admission(settings, backend, metrics, counters)
    metrics.watch(backend.load)
    budget = PixelBudget(pixels_in_flight(settings, counters.front_ends), counters)
    threads, most = cores(settings), settings.max_pixels
    decoders = DecoderPool(Limits.from_settings(settings, threads), metrics.on_decoder_end)
    return Service(
        settings=settings,
        backend=backend,
        pipeline=Pipeline(backend, fetcher, metrics, budget, decoders, most, threads),
        decoders=decoders,
        fetcher=fetcher,
        admission=admission,
        metrics=metrics,
        canary=Canary(backend, _canary_operation(model), _canary_image(), settings.canary_interval),
        computing=executor.computing,
        counters=counters,
        ends_with_worker=not addresses,
    )


async def stop_service(service: Service) -> None:
    """Refuse, finish what was accepted, stop the threads."""
    service.stopping.set()
    service.admission.draining = True
    await service.backend.aclose()
    await service.fetcher.aclose()
    await service.decoders.aclose()
    service.pipeline.close()


def create_app(
    settings: Settings, addresses: Sequence[str] = (), counters: Counters | None = None
) -> FastAPI:
    """The ASGI application; its parts live from startup to shutdown.

    With `addresses` it is a front end, and the workers there do the work; `counters` hold what all
    front ends count together.
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            service = await start_service(settings, metrics, addresses=addresses, counters=counters)
        except ValueError as error:  # of the settings: it would be the same the next time
            log.critical("%s", error)
            app.state.wrong_settings = True
            raise
        app.state.service = service
        await asyncio.gather(service.canary.sing(), service.decoders.start())
        settle()
        singing = asyncio.create_task(service.canary.keep_singing())
        yield
        singing.cancel()
        await stop_service(service)

    app = FastAPI(
        title="Darkroom",
        summary="Labels and filtered images, one answer for every image.",
        version=VERSION,
        lifespan=lifespan,
        responses=PROBLEMS,
        docs_url=None,  # loads its scripts from elsewhere, as the other does; `docs` asks nobody
        redoc_url=None,
    )
    for part in (classify, filter, process, catalogue, health, docs):
        app.include_router(part.router)
    problems.install(app)
    observe.install(app, settings, metrics)
    return app


def _admission(
    settings: Settings, backend: Backend, metrics: Metrics, counters: Counters
) -> Admission:
    return Admission(
        settings.max_images_in_flight,
        settings.max_bytes_in_flight,
        lambda: backend.load().service_rate,
        metrics.on_admission,
        counters,
    )


def pixels_in_flight(settings: Settings, front_ends: int) -> int:
    """The limit on decoded pixels in memory, over all front ends."""
    return settings.max_pixels_in_flight or max(
        LEAST_PIXELS_IN_FLIGHT, settings.max_pixels * front_ends
    )


def _computing(welcome: Welcome) -> Computing:
    model = None
    if welcome.model and welcome.labels:
        name, labels, wnids = welcome.labels
        label_set = LabelSet(name, tuple(labels), tuple(wnids))
        model = Model(ModelRecord.model_validate(welcome.model), label_set)
    return Computing(model, welcome.problem, welcome.degraded)


def _observer(metrics: Metrics) -> Observer:
    def observe(batch: Batch, _: BatchResult) -> None:
        operation = batch.tickets[0].job.operation
        name = "classify" if isinstance(operation, Classify) else "filter"
        metrics.on_batch(name, len(batch.tickets), batch.reason)

    return observe


def _canary_operation(model: Model | None) -> Operation:
    return Classify(top_k=1) if model else FilterChain((parse_one("invert", {}),))


def _canary_image() -> Image:
    ramp = np.linspace(0, 255, 64 * 64 * 3).astype(np.uint8)
    return Image(ramp.reshape(64, 64, 3))
