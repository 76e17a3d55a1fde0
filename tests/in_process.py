"""A whole server without a network or a network of weights: requests are ASGI calls in a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from starlette.types import Message

from app import main
from app.main import Executor
from app.service import Computing
from app.telemetry.metrics import Metrics
from models.domain.image import NetworkInput
from models.domain.job import Job, Labels, Result
from models.settings import Settings
from tests.fakes import FakeEngine, fake_network
from workers.backends.in_process import LocalBackend
from workers.operations import Classify
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker


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
    computing = Computing((fake_network("a", "b"),))
    executor = Executor(LocalBackend(worker, 5.0), lambda: computing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "local_executor", lambda *_: _done(executor))
        service = await main.start_service(Settings(), Metrics(), private=main.Private(True, False))
    app = main.create_app(Settings())
    app.state.service = service
    try:
        yield app
    finally:
        await main.stop_service(service)


async def ask(app: FastAPI, path: str, body: bytes, **headers: str) -> int:
    """Post a body; return the status. Underscores in names of headers are hyphens."""
    sent = list[Message]()
    scope = {
        "type": "http",
        "app": app,
        "method": "POST",
        "path": path.split("?", 1)[0],
        "query_string": path.partition("?")[2].encode(),
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        if (message := next(messages, None)) is not None:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


async def _done(executor: Executor) -> Executor:
    return executor
