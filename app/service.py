"""Everything one running server consists of, and how a route gets hold of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Annotated

from fastapi import Depends, Request

from app.admission import Admission
from app.admission.counters import Counters
from app.admission.keys import ApiKeys
from app.decoders import DecoderPool
from app.fetch.fetcher import Fetcher
from app.pipeline.pipeline import Pipeline
from app.telemetry.canary import Canary
from app.telemetry.metrics import Metrics
from models.api.schemas import ModelRecord
from models.domain.backend import Backend
from models.domain.errors import WeightsMissing
from models.labels import LabelSet
from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Model:
    """What classifies, and the names of its classes."""

    record: ModelRecord
    labels: LabelSet


@dataclass(frozen=True, slots=True)
class Computing:
    """What answers are computed with now: a worker that came back may have another device.

    `model` is None when there are no weights; `weights_problem` then says what to do. `degraded`
    says why the device is not the one that was asked for.
    """

    model: Model | None
    weights_problem: str | None
    degraded: str | None = None

    @property
    def missing(self) -> WeightsMissing:
        """What a client hears that wants labels while there is no model."""
        return WeightsMissing(self.weights_problem or "no weights are loaded")


@dataclass(slots=True)
class Service:
    """The parts of a running server; `app.main` puts them together.

    Only `settings` is ever replaced, by `app.processes.reconfigure`.
    """

    settings: Settings
    backend: Backend
    pipeline: Pipeline
    decoders: DecoderPool
    fetcher: Fetcher
    admission: Admission
    metrics: Metrics
    canary: Canary
    computing: Callable[[], Computing]
    keys: ApiKeys | None
    """The API keys, if images are taken only with one."""
    counters: Counters
    """What is in use of every limit, over all front ends."""
    set_batching: Callable[[Settings], None]
    """Forms batches by other settings, where the worker is in this process."""
    ends_with_worker: bool
    """Whether the worker is in this process; a front end waits for the next one."""
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a thumbnail is made: one at a time, or they would take all threads."""
    bodies: dict[str, tuple[object, bytes]] = field(default_factory=dict)
    """Bodies that are made once, by name, each with what it was made of."""
    stopping: Event = field(default_factory=Event)
    """Set on SIGTERM: not ready any more, but requests are served until the grace time ends."""

    @property
    def worker_lost(self) -> bool:
        """Whether the worker of this process has ended although nobody stopped it."""
        gone = self.ends_with_worker and not self.backend.load().alive
        return gone and not self.stopping.is_set()

    @property
    def model(self) -> Model | None:
        """What classifies now, None without weights."""
        return self.computing().model


def service_of(request: Request) -> Service:
    """The server's parts."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def _service(request: Request) -> Service:
    return service_of(request)


ServiceOf = Annotated[Service, Depends(_service)]
