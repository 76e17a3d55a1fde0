"""Which engine a worker starts with."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from models.domain.image import Image
from models.domain.job import Job
from models.settings import Settings
from tests.server import PATIENCE
from workers.filters.registry import parse_one
from workers.operations import FilterChain
from workers.scheduling.batch import Batch
from workers.supervision import startup
from workers.supervision.gpu_discovery import count_gpus, wanted_gpus
from workers.supervision.startup import GpuUnusable, start_worker

ROOT = Path(__file__).parents[4]

NO_SUCH_GPU = 99


def test_a_gpu_that_cannot_be_used_leaves_a_worker_on_the_cpu_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(weights="random", max_batch_size=1)
    with caplog.at_level(logging.ERROR):
        started = start_worker(settings, lambda _batch, _result: None, gpu=NO_SUCH_GPU)
    try:
        assert started.worker.load().device == "cpu"
        (served,) = started.networks
        assert served.model is not None
        assert served.model.record.device == "cpu"
        assert started.degraded
        assert started.stands_in
        assert f"GPU {NO_SUCH_GPU} cannot be used" in started.degraded
    finally:
        started.worker.stop()


def test_a_gpu_that_cannot_be_used_costs_no_load_on_the_cpu_where_nothing_may_stand_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_given: object, **_named: object) -> None:
        raise AssertionError("it was loaded on the CPU")

    monkeypatch.setattr(startup, "_on_cpu", never)
    settings = Settings(weights="random")
    with pytest.raises(GpuUnusable, match=f"GPU {NO_SUCH_GPU} cannot be used"):
        start_worker(settings, lambda _batch, _result: None, gpu=NO_SUCH_GPU, stand_in=False)


def test_on_a_cpu_every_image_that_is_filtered_rides_alone() -> None:
    sizes: list[int] = []
    answered = threading.Semaphore(0)

    def observe(batch: Batch, _seconds: float) -> None:
        sizes.append(len(batch.tickets))
        answered.release()

    worker = start_worker(Settings(threads=1), observe, weights=False).worker
    try:
        image = Image(np.zeros((4, 4, 3), np.uint8))
        job = Job(FilterChain((parse_one("invert", {}),)), image)
        for _ in range(20):
            worker.submit(job, lambda _outcomes: None)
        assert all(answered.acquire(timeout=PATIENCE) for _ in range(20))
    finally:
        worker.stop()
    assert sizes == [1] * 20


def test_more_gpus_than_there_are_is_wrong_usage() -> None:
    with pytest.raises(ValueError, match="can be used"):
        wanted_gpus(str(count_gpus() + 1))


def test_no_gpus_are_wanted_where_none_are_asked_for() -> None:
    assert wanted_gpus("0") == 0
    assert wanted_gpus("auto") == count_gpus()


def test_a_worker_that_only_filters_on_a_cpu_does_not_import_torch() -> None:
    code = """
import sys
from models.settings import Settings
from workers.supervision.startup import GpuUnusable, start_worker
start_worker(Settings(gpus="0"), lambda batch, result: None, weights=False).worker.stop()
print(sorted({"torch", "torchvision", "cupy"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("[]\n", "")
