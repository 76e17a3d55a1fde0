"""What is read out of a trace."""

import asyncio
from typing import Any

import pytest

from tests.fakes import FakeEngine, FakeOperation, fake_job
from workers.batcher import BatchLimits
from workers.local import LocalBackend
from workers.profile import IN_FLIGHT, keep_busy, utilisation
from workers.worker import Worker


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
    assert (found.idle, found.gap) == (pytest.approx(10e-6), pytest.approx(10e-6))


def test_a_trace_without_a_device_says_nothing() -> None:
    assert utilisation({"traceEvents": [event("cpu_op", "aten::conv2d", 0, 5)]}) is None


def test_load_is_kept_up_until_the_time_is_over() -> None:
    async def test() -> int:
        worker = Worker(FakeEngine(), BatchLimits(max_batch_size=8, max_batch_pixels=1 << 30))
        worker.start()
        backend = LocalBackend(worker)
        job = fake_job(1)
        assert isinstance(job.operation, FakeOperation)
        done = await keep_busy(backend, job.operation, [job.image], 0.05)
        await backend.aclose()
        return done

    assert asyncio.run(test()) >= IN_FLIGHT
