"""The parts of a running server, and how a route reaches them."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Annotated, Protocol

from fastapi import Depends, Request
from starlette.types import Scope

from app.admission import Admission
from app.admission.clients import ApiKeys
from app.decoders.pool import DecoderPool
from app.fetch.fetcher import Fetcher
from app.intake.presets import Presets
from app.pipeline.pipeline import Pipeline
from app.telemetry.canary import Canary
from app.telemetry.inference_statistics import ModelStatistics
from app.telemetry.metrics import Metrics
from models.domain.backend import Backend
from models.networks.served import ServedNetwork
from models.settings import Settings

if TYPE_CHECKING:  # it imports SQLAlchemy, which only servers with jobs need
    from app.jobs.jobs import Jobs


class Computing(Protocol):
    """The networks and the device that answer now: a new worker may have another device."""

    @property
    def networks(self) -> tuple[ServedNetwork, ...]:
        """Return the networks, the default first; there are none where the server only filters."""

    @property
    def degraded(self) -> str | None:
        """Return why the device is not the wanted device."""


@dataclass(slots=True)
class Service:
    """The parts of a running server; `app.main` puts them together.

    Only `settings` is ever replaced, by `app.processes.uvicorn_server`.
    """

    settings: Settings
    presets: Presets
    backend: Backend
    pipeline: Pipeline
    decoders: DecoderPool
    fetcher: Fetcher
    admission: Admission
    metrics: Metrics
    canary: Canary
    computing: Callable[[], Computing]
    keys: ApiKeys | None
    """The API keys; None if images are accepted without a key."""
    set_batching: Callable[[Settings], None]
    """Applies new settings of batches; does nothing if the worker is in another process."""
    ends_with_worker: bool
    """True if the worker is in this process; a front end waits for a new worker instead."""
    jobs: "Jobs | None" = None
    """The jobs of the data folder; None if there is no such setting."""
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock for making thumbnails, one at a time: several would occupy all threads."""
    listed: tuple[object, bytes] = (None, b"")
    """The networks that `GET /models` was asked for last, and its body for them."""
    inference: defaultdict[str, ModelStatistics] = field(
        default_factory=lambda: defaultdict(ModelStatistics)
    )
    """The statistics of the Open Inference Protocol, of this process, by the names of models."""
    ending: list[Awaitable[None]] = field(default_factory=list)
    """Tasks that still use the parts when the server stops; the parts are stopped after them."""
    stopping: Event = field(default_factory=Event)
    """Set on SIGTERM: the server is not ready any more, but serves until the grace time ends."""

    @property
    def ready(self) -> bool:
        """Return whether the server is not stopping and its worker works."""
        return self.canary.readiness().ready and not self.stopping.is_set()

    @property
    def worker_lost(self) -> bool:
        """Return whether the worker of this process has ended although it was not stopped."""
        gone = self.ends_with_worker and not self.backend.load().alive
        return gone and not self.stopping.is_set()


def service_in(scope: Scope) -> Service:
    """Return the parts of the server that received the request with this scope."""
    service = scope["app"].state.service
    assert isinstance(service, Service)
    return service


async def _service(request: Request) -> Service:
    return service_in(request.scope)


ServiceOf = Annotated[Service, Depends(_service)]
