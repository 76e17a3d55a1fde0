"""The composition root: builds every part from the settings and hands it over.

The only file of `app` that picks a backend and reaches into `workers` beyond declarations.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI

from app import problems
from app.admission import Admission
from app.budget import PixelBudget
from app.canary import Canary
from app.fetch import Fetcher, FetchLimits
from app.metrics import Metrics
from app.observe import Observe
from app.pipeline import Pipeline
from app.routes import catalogue, classify, filter, health
from app.service import Model, Service
from models.backend import Backend
from models.image import Image
from models.job import Operation, ReleaseReason
from models.labels import LabelSet
from models.schemas import ModelRecord
from models.settings import Settings
from models.weights import BUNDLED, CATALOGUE, Bundled, PublishedWeights
from workers.batch import Batch
from workers.batcher import BatchLimits
from workers.engine import BatchResult
from workers.filters import parse_one
from workers.local import LocalBackend
from workers.operations import Classify, FilterChain
from workers.processes import ProcessBackend
from workers.weights_store import WeightsStore, WeightsUnavailable, verified_sha256
from workers.wire import Batched
from workers.worker import Observer, Worker

BYTES_PER_PIXEL = 4
"""Of the shared memory through which images go to worker processes."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A started backend and what it classifies with."""

    backend: Backend
    model: Model | None
    weights_problem: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """A running worker, what it classifies with, or why with nothing."""

    worker: Worker[Any]
    record: ModelRecord | None
    labels: LabelSet | None
    problem: str | None


def cores(settings: Settings) -> int:
    """Cores to compute with."""
    return settings.threads or len(os.sched_getaffinity(0))


def start_worker(settings: Settings, on_batch: Observer, weights: bool = True) -> Started:
    """Load the weights if wanted, warm the engine up, start the worker; takes seconds."""
    from workers.engines.cpu import CpuEngine
    from workers.engines.model import Loaded, load_model

    loaded = load_model(settings) if weights else Loaded()
    engine = CpuEngine(loaded.network, settings.max_batch_size, cores(settings))
    engine.warm_up()
    limits = BatchLimits(
        max_batch_size=settings.max_batch_size,
        max_batch_pixels=settings.max_batch_pixels,
        max_queue_delay=settings.max_queue_delay,
    )
    worker = Worker(engine, limits, on_batch=on_batch)
    worker.start()
    return Started(worker, loaded.record, loaded.labels, loaded.problem)


async def local_executor(settings: Settings, metrics: Metrics, weights: bool) -> Executor:
    """A worker in threads of this process."""
    started = await asyncio.to_thread(start_worker, settings, _observer(metrics), weights)
    model = Model(started.record, started.labels) if started.record and started.labels else None
    backend = LocalBackend(started.worker, settings.drain_timeout)
    return Executor(backend, model, started.problem)


async def remote_executor(
    settings: Settings, metrics: Metrics, addresses: Sequence[str]
) -> Executor:
    """Workers in processes of their own, at Unix sockets; waits until one is there."""
    arena = BYTES_PER_PIXEL * max(settings.max_pixels, settings.max_pixels_in_flight)

    def on_batch(batched: Batched) -> None:
        metrics.on_batch(batched.operation, batched.size, ReleaseReason(batched.reason))

    backend = ProcessBackend(
        addresses,
        arena,
        settings.drain_timeout,
        on_batch,
        on_other=lambda: signal.raise_signal(signal.SIGTERM),
    )
    welcome = await backend.welcome()
    model = None
    if welcome.model and welcome.labels:
        name, labels, wnids = welcome.labels
        label_set = LabelSet(name, tuple(labels), tuple(wnids))
        model = Model(ModelRecord.model_validate(welcome.model), label_set)
    return Executor(backend, model, welcome.problem)


async def start_service(
    settings: Settings, metrics: Metrics, weights: bool = True, addresses: Sequence[str] = ()
) -> Service:
    """Build every part, innermost first; without `weights` it only filters.

    `addresses` are those of worker processes; without any, the worker is in this one.
    """
    executor = await (
        remote_executor(settings, metrics, addresses)
        if addresses
        else local_executor(settings, metrics, weights)
    )
    backend, model = executor.backend, executor.model
    fetcher = Fetcher(FetchLimits.from_settings(settings), observe=metrics.on_fetch)
    admission = Admission(
        settings.max_images_in_flight,
        settings.max_bytes_in_flight,
        lambda: backend.load().service_rate,
        metrics.on_admission,
    )
    metrics.watch(backend.load)
    budget = PixelBudget(settings.max_pixels_in_flight)
    return Service(
        settings=settings,
        backend=backend,
        pipeline=Pipeline(backend, fetcher, metrics, budget, settings.max_pixels, cores(settings)),
        fetcher=fetcher,
        admission=admission,
        metrics=metrics,
        canary=Canary(backend, _canary_operation(model), _canary_image(), settings.canary_interval),
        model=model,
        weights_problem=executor.weights_problem,
    )


async def stop_service(service: Service) -> None:
    """Refuse, finish what was accepted, stop the threads."""
    service.stopping.set()
    service.admission.draining = True
    await service.backend.aclose()
    await service.fetcher.aclose()
    service.pipeline.close()


def manage_weights(settings: Settings, action: str, name: str) -> int:
    """`darkroom weights`: download, verify or list published weights; the exit code."""
    store = WeightsStore(settings.cache_folder)
    if action == "list":
        print(f"{BUNDLED.name:16} {'present':8} {BUNDLED.sha256}  {BUNDLED.path}")
        for published, path, status in store.listing():
            print(f"{published.name:16} {status.value:8} {published.sha256}  {path}")
        return 0
    known: dict[str, Bundled | PublishedWeights] = {BUNDLED.name: BUNDLED, **CATALOGUE}
    if name not in known:
        print(f"darkroom: no weights {name!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    try:
        path = _get(store, action, known[name])
    except WeightsUnavailable as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return 1
    print(f"{path} has sha256 {known[name].sha256}")
    return 0


def _get(store: WeightsStore, action: str, weights: Bundled | PublishedWeights) -> Path:
    """The verified file; `fetch` downloads it if need be, and bundled ones need not."""
    if isinstance(weights, Bundled):
        verified_sha256(weights.path, weights.sha256)
        return weights.path
    return store.fetch(weights) if action == "fetch" else store.open_verified(weights)


def create_app(settings: Settings, addresses: Sequence[str] = ()) -> FastAPI:
    """The ASGI application; its parts live from startup to shutdown.

    With `addresses` it is a front end, and the workers there do the work.
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = await start_service(settings, metrics, addresses=addresses)
        await service.canary.sing()
        gc.freeze()  # what has been loaded stays: no collection need walk through it
        singing = asyncio.create_task(service.canary.keep_singing())
        yield
        singing.cancel()
        await stop_service(service)

    app = FastAPI(
        title="Darkroom",
        summary="Labels and filtered images, one answer for every image.",
        version=version("darkroom"),
        lifespan=lifespan,
        max_body_size=settings.max_body_bytes,
        redoc_url=None,
    )
    for router in (classify.router, filter.router, catalogue.router, health.router):
        app.include_router(router)
    problems.install(app)
    app.add_middleware(Observe, metrics=metrics, body_timeout=settings.body_timeout)
    return app


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
