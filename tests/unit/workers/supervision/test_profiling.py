"""What is read out of a trace."""

import asyncio
import itertools
from typing import Any

import pytest

from models.domain.backend import Load
from models.domain.errors import WorkerLost
from models.domain.job import Completed, Job, Labels, ReleaseReason, Trace
from tests.fakes import GUARD, FakeEngine, fake_job
from workers.backends.in_process import LocalBackend
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker
from workers.supervision.profiling import IN_FLIGHT, keep_busy, kernel_times, utilisation


def event(category: str, name: str, begin: float, length: float) -> dict[str, Any]:
    return {"cat": category, "name": name, "ts": begin, "dur": length}


def test_overlap_idle_time_and_shares_are_those_of_the_spans() -> None:
    trace = {
        "traceEvents": [
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 20),
            event("kernel", "crop", 10, 40),
            event("kernel", "conv", 30, 10),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 20),
            event("kernel", "crop", 70, 30),
            event("cpu_op", "aten::conv2d", 0, 1000),
            {"ph": "M", "name": "process_name"},
        ]
    }
    found = utilisation(trace)
    assert found is not None
    assert found.seconds == pytest.approx(100e-6)
    assert found.busy == pytest.approx(0.9)
    assert found.shares == pytest.approx({"upload": 0.2, "compute": 0.7, "download": 0.2})
    assert found.overlap == pytest.approx({"upload": 0.5, "download": 0.5})
    assert found.idle == pytest.approx(10e-6)
    assert found.gap == pytest.approx(10e-6)
    assert [*kernel_times(trace).items()] == [("crop", 0.07), ("conv", 0.01)]


def test_a_trace_without_a_device_says_nothing() -> None:
    assert utilisation({"traceEvents": [event("cpu_op", "aten::conv2d", 0, 5)]}) is None


TRACE = Trace(0.0, 0.0, 0.0, 0.0, 0.0, 1, 1, ReleaseReason.IDLE)


class Clockwork:
    """A backend whose jobs take `took` seconds each, all side by side, on a clock of its own."""

    def __init__(self, took: float) -> None:
        self.now = 0.0
        self.runs = 0
        self._took = took

    def clock(self) -> float:
        return self.now

    async def run(self, _job: Job) -> Completed:
        self.runs += 1
        end = self.now + self._took
        await asyncio.sleep(0)  # every other job begins at the same time
        self.now = max(self.now, end)
        return Completed(Labels((0,), (1.0,)), TRACE)

    def load(self) -> Load:
        raise AssertionError("a profile asks for no load")

    async def aclose(self) -> None:
        raise AssertionError("a profile closes no backend")


def counted(took: float, seconds: float) -> int:
    backend, job = Clockwork(took), fake_job(1)
    busy = keep_busy(backend, job.operation, [job.image], seconds, backend.clock)
    return asyncio.run(busy)


@pytest.mark.parametrize(
    ("took", "rounds"),
    [(27.5, 0), (1.001, 0), (1.0, 1), (0.6, 1), (0.5, 2), (0.25, 4)],
)
def test_only_jobs_that_ended_within_the_window_are_counted(took: float, rounds: int) -> None:
    assert counted(took, 1.0) == rounds * IN_FLIGHT


def test_jobs_that_are_under_way_at_the_end_are_not_waited_for() -> None:
    class Stuck(Clockwork):
        async def run(self, _job: Job) -> Completed:
            await asyncio.Event().wait()
            raise AssertionError

    backend, job = Stuck(1.0), fake_job(1)
    busy = keep_busy(backend, job.operation, [job.image], 0.01)
    assert asyncio.run(asyncio.wait_for(busy, 60)) == 0


def test_an_error_of_a_job_ends_the_load_with_that_error() -> None:
    class Failing(Clockwork):
        async def run(self, _job: Job) -> Completed:
            raise WorkerLost("gone")

    backend, job = Failing(1.0), fake_job(1)
    with pytest.raises(WorkerLost, match="gone"):
        asyncio.run(keep_busy(backend, job.operation, [job.image], 60.0))


def test_load_is_kept_up_until_the_time_is_over() -> None:
    calls = itertools.count()

    def clock() -> float:
        """Let the time be over after a number of readings, of which each job makes two."""
        return 0.0 if next(calls) < 4 * IN_FLIGHT else 2 * GUARD

    async def test() -> int:
        worker = Worker(FakeEngine(), BatchLimits(max_batch_size=8, max_batch_pixels=1 << 30))
        worker.start()
        backend = LocalBackend(worker)
        job = fake_job(1)
        done = await keep_busy(backend, job.operation, [job.image], GUARD, clock)
        await backend.aclose()
        return done

    assert asyncio.run(test()) >= IN_FLIGHT
