"""A whole server without a network or a network of weights: requests are ASGI calls in a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from app import main
from app.main import Executor
from app.telemetry.metrics import Metrics
from models.domain.image import NetworkInput
from models.domain.job import Job, Labels, Result
from models.settings import Settings
from tests.fakes import FakeEngine, fake_network
from workers.backends.in_process import LocalBackend
from workers.operations import Classify
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker
from workers.supervision.startup import Started


def answer(job: Job) -> Result:
    """Return two labels, or the image itself as the result of its filters."""
    if isinstance(job.operation, Classify):
        return Labels((1, 0), (0.75, 0.25))
    assert not isinstance(job.image, NetworkInput)
    return job.image


@asynccontextmanager
async def served(engine: FakeEngine | None = None) -> AsyncIterator[FastAPI]:
    """Start a service whose engine answers at once; yield its application, and stop it.

    Its default engine gives the same two labels for every image.
    """
    worker = Worker(engine or FakeEngine(answer=answer), BatchLimits(1, 1 << 40))
    worker.start()
    started = Started(worker, (fake_network("a", "b"),))
    executor = Executor(LocalBackend(worker, 5.0), lambda: started)

    async def connect(*_: object) -> Executor:
        return executor

    service = await main.start_service(Settings(), Metrics(), connect, private=True)
    app = main.create_app(Settings())
    app.state.service = service
    try:
        yield app
    finally:
        await main.stop_service(service)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    """Return a client of an application, whose requests are calls in this process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
