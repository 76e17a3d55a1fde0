"""Workers on other hosts: the backend that asks replicas of Ray Serve, and the class of a replica.

Each job is one call. Ray Serve chooses the replica, and carries jobs and answers. A job of a lost
replica is sent again while its deadline allows: the work is pure, so a second run is safe. It is
computed alone then, and fails when `MAX_LOSSES` replicas were lost with it: only this job can be
the cause.

Ray is imported inside the functions that use it.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from models.domain.alarms import Timeout
from models.domain.backend import Load, combined
from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    Overloaded,
    Quarantined,
    ServiceError,
    WorkerLost,
)
from models.domain.job import Completed, Job
from models.networks.served import ServedNetwork
from workers.backends.in_process import LocalBackend
from workers.ipc.frames import EncodedError, bytes_for, decode_error, encode_error, encode_source
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.cluster")

MAX_LOSSES = 3

MOST_GRPC_BYTES = 3 << 20
"""Bytes of an image, and of its result, that go over the gRPC of Ray Serve: a call then costs a
fraction of the CPU time of Ray's own transport, but messages have at most 4 MiB."""

_GRPC = {
    "_by_reference": False,
    "request_serialization": "pickle",
    "response_serialization": "pickle",
}
"""Options of a handle whose calls go over gRPC. Ray Serve's default, cloudpickle, is slower."""

_FINAL = ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNIMPLEMENTED")
"""Statuses of gRPC with which the same call would end again: too large, no token, another Ray."""

PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds before a job of a lost replica is sent again; they double with each loss of the job. In
that time Ray learns that the replica is lost."""

PATIENCE = 5.0
"""Seconds in which all replicas must answer a question to all of them."""

SILENT = 10.0
"""Seconds after which a replica that has not reported counts as lost."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A replica's networks, default first, why the replica is degraded, and its largest batch."""

    networks: tuple[ServedNetwork, ...]
    degraded: str | None
    max_batch_size: int

    @property
    def identity(self) -> str:
        """Return a text that differs where networks, weights or labels do."""
        found = repr([each.identity for each in self.networks])
        return hashlib.sha256(found.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a replica. `busy_images` keep the replica busy; see `Offer.identity`."""

    replica: str
    identity: str
    busy_images: int
    load: Load


class Replica:
    """A started worker that answers the calls of front ends. Ray Serve deploys a class of it."""

    def __init__(
        self, worker: Worker[Any], name: str, description: Offer, busy_images: int
    ) -> None:
        self.worker = worker
        self.backend = LocalBackend(worker)
        self._name, self._busy_images = name, busy_images
        self._description, self._identity = description, description.identity

    async def compute(self, job: Job, *, alone: bool) -> tuple[Completed | EncodedError, float]:
        """Return the outcome of a job, and the seconds since its batch was launched.

        The deadline of `job` is the time left, because the clocks of two hosts differ. A call that
        is cancelled drops its job.
        """
        deadline = Deadline(time.monotonic() + job.deadline.at)
        try:
            done = await self.backend.run(replace(job, deadline=deadline), alone=alone)
        except ServiceError as error:
            return encode_error(error), 0.0
        return done, time.monotonic() - done.trace.launched_at

    async def report(self) -> Report:
        """Return the state of this replica."""
        return Report(self._name, self._identity, self._busy_images, self.worker.load())

    async def describe(self) -> Offer:
        """Return the networks and the batch size of this replica."""
        return self._description


class RayBackend:
    """Backend on the replicas behind `handle`, of a deployment; belongs to a single event loop.

    All replicas are asked for their state every `report_every` seconds; `on_change` is called when
    some have come or gone. `identity` is that of the weights which the front end names in answers,
    None for the first weights that are found; `changed` tells that a replica has other weights.
    """

    def __init__(
        self,
        handle: Any,
        drain_timeout: float | None = None,
        *,
        identity: str | None = None,
        report_every: float = 0.5,
    ) -> None:
        self._handle = handle
        self._by_ray, self._by_grpc = handle.compute, handle.options(**_GRPC).compute
        self._drain_timeout = drain_timeout
        self._identity = identity
        self.on_change: Callable[[], None] = lambda: None
        self._reports: dict[str, tuple[float, Report]] = {}
        self._tasks: set[asyncio.Task[Completed]] = set()
        self._closing, self._ended = asyncio.Event(), False
        self._asking = asyncio.create_task(self._keep_asking(report_every))
        self.changed, self.submitted = False, 0

    @property
    def busy_images(self) -> int:
        """Return the images that keep all replicas busy."""
        return sum([each.busy_images for _, each in self._reports.values()])

    async def run(self, job: Job) -> Completed:
        """Return the answer of a job; a hung replica is answered with 504 at the deadline."""
        if self._closing.is_set():
            raise Draining("this server is stopping; ask another one")
        self.submitted += 1
        task = asyncio.create_task(self._answer(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with Timeout(job.deadline, ends_early=False):
                return await task
        except TimeoutError:
            raise DeadlineExceeded("the request's deadline passed") from None
        except asyncio.CancelledError:
            if self._ended and not _is_cancelled():
                text = "the server stopped before the image was done; try again"
                raise WorkerLost(text) from None
            raise

    def load(self) -> Load:
        """Return the load of all replicas together.

        Baseline JPEGs are always taken encoded: a file is a tenth of its pixels on the network.
        """
        loads = [each.load for _, each in self._reports.values()]
        device = ", ".join(sorted({each.device for each in loads}))
        load = combined(loads, [] if self._closing.is_set() else loads, device)
        return replace(load, takes_jpegs=True)

    async def aclose(self) -> None:
        """Refuse new jobs, wait for the accepted ones, then end the calls."""
        self._closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_timeout)
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._asking, *self._tasks, return_exceptions=True)

    async def _answer(self, job: Job) -> Completed:
        losses, pause = 0, PAUSE
        while losses < MAX_LOSSES:
            try:
                return await self._call(job, alone=losses > 0)
            except _Lost as lost:
                losses += lost.counts
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        text = f"{losses} replicas ended while they computed this image"
        raise Quarantined(f"{text}; convert it, or send another image")

    async def _call(self, job: Job, *, alone: bool) -> Completed:
        """Return the answer of the replica that Ray Serve chooses; raise _Lost or ServiceError."""
        left = Deadline(job.deadline.at - time.monotonic())
        sent = replace(job, deadline=left, owned=False)
        size = bytes_for(job, encode_source(job.image)[0])
        compute = self._by_grpc if size <= MOST_GRPC_BYTES else self._by_ray
        response = compute.remote(sent, alone=alone)
        try:
            outcome, age = await response
        except asyncio.CancelledError:
            if _is_cancelled():
                response.cancel()
                raise
            raise _Lost(counts=False) from None  # the replica's, which Ray hands over
        except Exception as error:
            raise _error_of(error) from error
        if isinstance(outcome, Completed):
            trace = replace(outcome.trace, launched_at=time.monotonic() - age)
            return Completed(outcome.result, trace)
        failed = decode_error(outcome)
        if isinstance(failed, Draining | WorkerLost):
            raise _Lost(counts=isinstance(failed, WorkerLost))
        raise failed

    async def _keep_asking(self, every: float) -> None:
        while not self._closing.is_set():
            reports: list[Report] = []
            try:
                reports = await self._asked()
            except Exception as error:  # the next attempt is protected
                log.warning("the replicas could not be asked for their load: %r", error)
            self._take(reports)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), every)

    async def _asked(self) -> list[Report]:
        """Return the reports of the replicas that answer in time."""
        response = self._handle.broadcast("report")
        async with asyncio.timeout(PATIENCE):
            # The public `results_async` gives no answer at all if one replica has none in time.
            found = await response._fetch_replica_results_async()
        asked = [asyncio.ensure_future(each.get_async()) for each in found]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE)
        for each in asked:
            each.cancel()  # does nothing to those that have answered
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [each for each in answers if isinstance(each, Report)]

    def _take(self, reports: Sequence[Report]) -> None:
        """Take the reports of replicas, and forget those that are silent for SILENT seconds."""
        now, before = time.monotonic(), self._reports.keys()
        known = {name: each for name, each in self._reports.items() if now - each[0] < SILENT}
        self._reports = known | {each.replica: (now, each) for each in reports}
        for each in reports:
            self._identity = self._identity or each.identity
            self.changed = self.changed or each.identity != self._identity
        if self._reports.keys() != before:
            self.on_change()


class _Lost(Exception):
    """The replica of a call is lost, or leaves; `counts`: the job of the call may be the cause."""

    def __init__(self, *, counts: bool) -> None:
        super().__init__(counts)
        self.counts = counts


def _error_of(error: Exception) -> _Lost | ServiceError:
    """Return the error of ours for an error of Ray; log a fault of the replica's own code."""
    from grpc.aio import AioRpcError
    from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError
    from ray.serve.exceptions import BackPressureError, RayServeException

    if isinstance(error, BackPressureError):
        text = "the workers have as many images waiting as they may have; try again"
        return Overloaded(text, 1.0)
    if isinstance(error, AioRpcError) and error.code().name not in _FINAL:
        return _Lost(counts=True)
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, RayError | RayServeException | asyncio.CancelledError):
        # An actor that died, or whose connection ended: over gRPC these are the same.
        return _Lost(counts=isinstance(cause, RayActorError | OutOfMemoryError))
    log.error("a call to a replica failed", exc_info=error)
    return InternalError("a worker failed while it took the image; it has been logged")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
