"""What the backend on Ray Serve does when replicas are lost; `Handle` stands for Ray Serve's.

`tests/contract` runs the backend on a real Ray; `tests/e2e/test_ray_replica.py` kills its process.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    InternalError,
    Overloaded,
    Quarantined,
    WorkerLost,
)
from models.domain.job import Job, Labels
from tests.fakes import FakeEngine, fake_job
from tests.ray_cluster import import_ray
from tests.worker_fixture import wait_until
from workers import cluster
from workers.cluster import MAX_LOSSES, SILENT, Offer, RayBackend, Replica, Report
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    """Import Ray once, without starting it."""
    import_ray()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lost jobs be sent again soon."""
    monkeypatch.setattr(cluster, "LONGEST_PAUSE", 0.01)


class Call:
    """The response to a call of a handle."""

    def __init__(self, answer: Coroutine[Any, Any, Any]) -> None:
        self._answer = answer
        self.cancelled = False

    def __await__(self) -> Any:
        return self._answer.__await__()

    def cancel(self) -> None:
        self.cancelled = True

    async def _fetch_replica_results_async(self) -> list[Any]:
        return [SimpleNamespace(get_async=lambda: self._answer)]


class Handle:
    """One replica in this process; `lose` returns the error of each call, or None."""

    def __init__(self, lose: Callable[[], BaseException | None]) -> None:
        self._lose = lose
        self.alone: list[bool] = []
        self.calls: list[Call] = []
        self.wrong: list[object] = []  # answers to questions, in place of the replica's
        worker = Worker(FakeEngine(), BatchLimits(max_batch_size=8, max_batch_pixels=1 << 20))
        worker.start()
        self.replica = Replica(worker, "one", Offer((), None, 8), 8)
        self.compute = SimpleNamespace(remote=self._compute)

    def options(self, **_options: Any) -> "Handle":
        return self

    def _compute(self, job: Job, *, alone: bool) -> Call:
        self.alone.append(alone)
        self.calls.append(call := Call(self._computed(job, alone)))
        return call

    async def _computed(self, job: Job, alone: bool) -> object:
        if (error := self._lose()) is not None:
            raise error
        return await self.replica.compute(job, alone=alone)

    def broadcast(self, _method: str) -> Call:
        return Call(self._report())

    async def _report(self) -> object:
        return self.wrong.pop() if self.wrong else await self.replica.report()


@asynccontextmanager
async def served(
    lose: Callable[[], BaseException | None],
) -> AsyncIterator[tuple[RayBackend, Handle]]:
    """Yield a backend on a replica of which `lose` loses calls."""
    handle = Handle(lose)
    backend = RayBackend(handle, 0.2, report_every=0.05)
    try:
        yield backend, handle
    finally:
        await backend.aclose()
        handle.replica.worker.stop()


def losing(times: int, error: Callable[[], BaseException]) -> Callable[[], BaseException | None]:
    """Return what loses the first calls."""
    left = iter(range(times))
    return lambda: error() if next(left, None) is not None else None


def died() -> BaseException:
    from ray.exceptions import ActorDiedError

    return ActorDiedError()


def unavailable() -> BaseException:
    from ray.exceptions import ActorUnavailableError

    return ActorUnavailableError("no connection", None)


def failed(cause: BaseException) -> BaseException:
    """Return what Ray raises where the code of a replica raised `cause`."""
    from ray.exceptions import RayTaskError

    found: Exception = RayTaskError("compute", "Traceback", cause, "replica", 1, "127.0.0.1")
    return found


@pytest.mark.parametrize("error", [died, unavailable])
async def test_a_job_of_a_lost_replica_is_sent_again_and_computed_alone(
    error: Callable[[], BaseException],
) -> None:
    async with served(losing(1, error)) as (backend, handle):
        done = await backend.run(fake_job(1))
        assert done.result == Labels((1,), (1.0,))
        assert handle.alone == [False, True]


async def test_a_job_that_ends_every_replica_is_given_up() -> None:
    async with served(losing(100, died)) as (backend, handle):
        with pytest.raises(Quarantined, match="3 replicas ended"):
            await backend.run(fake_job(1))
        assert len(handle.alone) == MAX_LOSSES


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError, lambda: failed(asyncio.CancelledError())],
    ids=["cancelled", "cancelled there"],
)
async def test_replicas_that_leave_are_no_losses(error: Callable[[], BaseException]) -> None:
    async with served(losing(MAX_LOSSES + 2, error)) as (backend, handle):
        await backend.run(fake_job(1))
        assert handle.alone == [False] * (MAX_LOSSES + 3)


async def test_a_stopped_worker_is_a_replica_that_leaves() -> None:
    async with served(lambda: None) as (backend, handle):
        handle.replica.worker.stop()
        with pytest.raises(DeadlineExceeded):
            await backend.run(fake_job(1, deadline=Deadline(time.monotonic() + 0.2)))
        assert len(handle.alone) > MAX_LOSSES


async def test_what_rays_queue_refuses_is_an_error_of_ours() -> None:
    handle_error: list[BaseException] = []
    async with served(lambda: handle_error[-1]) as (backend, _handle):
        from ray.serve.exceptions import BackPressureError

        handle_error.append(BackPressureError(num_queued_requests=1, max_queued_requests=1))
        with pytest.raises(Overloaded):
            await backend.run(fake_job(1))


@pytest.mark.parametrize("error", [lambda: failed(ValueError("a fault")), lambda: TypeError("x")])
async def test_a_fault_of_code_is_no_loss(error: Callable[[], BaseException]) -> None:
    async with served(error) as (backend, handle):
        with pytest.raises(InternalError):
            await backend.run(fake_job(1))
        assert len(handle.calls) == 1


async def test_a_cancelled_job_cancels_its_call() -> None:
    async with served(lambda: None) as (backend, handle):

        async def never() -> object:
            return await asyncio.Event().wait()

        def remote(_job: Job, **_alone: bool) -> Call:
            handle.calls.append(call := Call(never()))
            return call

        handle.compute.remote = remote
        task = asyncio.create_task(backend.run(fake_job(1)))
        await wait_until(lambda: bool(handle.calls))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handle.calls[0].cancelled


async def test_replicas_that_are_not_there_any_more_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(lambda: None) as (backend, handle):
        await wait_until(lambda: backend.load().alive)
        assert backend.busy_images == 8
        other = Report("two", "", 4, backend.load())
        backend._take([other])  # the first one is silent
        assert backend.busy_images == 12
        backend._reports = {n: (at - SILENT, each) for n, (at, each) in backend._reports.items()}
        backend._take([other])  # and is silent for too long
        assert backend.busy_images == 4
        monkeypatch.setattr(cluster, "SILENT", 0.5)
        handle.wrong = ["no report"] * 3
        await wait_until(lambda: not handle.wrong)
        await wait_until(lambda: backend.busy_images == 8)


async def test_nothing_is_sent_after_the_drain() -> None:
    async with served(losing(1000, asyncio.CancelledError)) as (backend, handle):
        job = asyncio.create_task(backend.run(fake_job(1)))
        await wait_until(lambda: bool(handle.calls))
        await backend.aclose()
        calls = len(handle.calls)
        with pytest.raises(WorkerLost, match="stopped"):
            await job
        await asyncio.sleep(0.05)
        assert len(handle.calls) == calls
