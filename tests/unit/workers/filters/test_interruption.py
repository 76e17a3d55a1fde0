"""Filters of images whose deadline has passed end, so that the images behind them need not wait."""

import time

import numpy as np
import pytest

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded
from models.domain.image import Image
from models.domain.job import Job
from tests.fakes import run_batch
from workers.engines.cpu.engine import CpuEngine
from workers.filters.interruption import ending_at
from workers.filters.registry import parse_chain
from workers.operations import FilterChain


def test_a_slow_filter_looks_at_the_deadline_at_each_of_its_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([0.0, 0.0, 9.0])
    monkeypatch.setattr("workers.filters.interruption.monotonic", lambda: next(looks, 9.0))
    (slow,) = parse_chain([{"name": "nl_means", "search": 3, "patch": 1}])
    pixels = np.zeros((257, 520, 1), np.uint8)  # six tiles
    with ending_at(Deadline(5.0)), pytest.raises(DeadlineExceeded):
        slow.apply(pixels)
    assert next(looks, None) is None


def test_an_image_that_is_late_fails_alone_in_its_batch() -> None:
    chain = FilterChain(parse_chain([{"name": "invert"}]))
    image = Image(np.zeros((4, 4, 3), np.uint8))
    jobs = [Job(chain, image, deadline) for deadline in (Deadline(time.monotonic() - 1), NEVER)]
    late, good = run_batch(CpuEngine((), most=2, threads=1), jobs).values
    assert isinstance(late, DeadlineExceeded)
    assert isinstance(good, Image)
    assert good.pixels.min() == 255
