"""Which engine a worker starts with."""

import logging

import pytest

from models.settings import Settings
from workers.devices import count_gpus, wanted_gpus
from workers.start import start_worker

NO_SUCH_GPU = 99


def test_a_gpu_that_cannot_be_used_leaves_a_worker_on_the_cpu_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = Settings(weights="random", max_batch_size=1)
    with caplog.at_level(logging.ERROR):
        started = start_worker(settings, lambda batch, result: None, gpu=NO_SUCH_GPU)
    try:
        assert started.worker.load().device == "cpu"
        assert started.record is not None
        assert started.record.device == "cpu"
        assert started.degraded
        assert f"GPU {NO_SUCH_GPU} cannot be used" in started.degraded
    finally:
        started.worker.stop()


def test_more_gpus_than_there_are_is_wrong_usage() -> None:
    with pytest.raises(ValueError, match="can be used"):
        wanted_gpus(str(count_gpus() + 1))


def test_no_gpus_are_wanted_where_none_are_asked_for() -> None:
    assert wanted_gpus("0") == 0
    assert wanted_gpus("auto") == count_gpus()
