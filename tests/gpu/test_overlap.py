"""The streams of neighbouring batches run side by side, as a trace of a loaded worker shows."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch.profiler import ProfilerActivity, profile

from models.domain.image import Image
from models.domain.job import Job
from workers.backends.in_process import LocalBackend
from workers.engines.cuda.engine import CudaEngine
from workers.filters.registry import parse_chain
from workers.operations import FilterChain
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

SLOW = FilterChain(parse_chain([{"name": "median", "size": 31}] * 32))
"""The computation takes about 20 ms a batch on an H200, four times what the host needs to prepare
the batch. Only then does the next batch wait for the device, and only then can the download of one
batch run beside the computation of the next.
"""

IN_FLIGHT = 256
"""Jobs under way."""

Spans = list[tuple[float, float]]
"""Begins and ends in microseconds, in order and apart from each other."""


async def keep_busy(backend: LocalBackend, images: list[Image], seconds: float) -> None:
    """Keep jobs under way; those that are left at the end are given up."""
    turns, until = itertools.cycle(images), time.monotonic() + seconds

    async def one_after_another() -> None:
        while time.monotonic() < until:
            await backend.run(Job(SLOW, next(turns)))

    tasks = [asyncio.create_task(one_after_another()) for _ in range(IN_FLIGHT)]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def spans(trace: dict[str, Any], category: str, part: str = "") -> Spans:
    """Return when the device did work of this category whose name has this part."""
    return merged(
        (event["ts"], event["ts"] + event["dur"])
        for event in trace["traceEvents"]
        if event.get("cat") == category and part in event["name"]
    )


def merged(found: Iterable[tuple[float, float]]) -> Spans:
    union: Spans = []
    for begin, end in sorted(found):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union


def length(union: Spans) -> float:
    return sum(end - begin for begin, end in union)


def test_uploads_and_downloads_happen_while_neighbours_are_computed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = [Image(random.integers(0, 256, (1080, 1920, 3), np.uint8)) for _ in range(4)]
    engine = CudaEngine([], 2, 8_000_000, "cuda:0")
    worker = Worker(engine, BatchLimits(max_batch_size=2, max_batch_pixels=1 << 30))
    worker.start()
    # The first batches also load kernels and allocate memory, so they are not traced.
    asyncio.run(keep_busy(LocalBackend(worker), images, 1.0))
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        asyncio.run(keep_busy(LocalBackend(worker), images, 2.0))
    worker.stop()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    computing = spans(trace, "kernel")
    for copy in ("HtoD", "DtoH"):
        copying = spans(trace, "gpu_memcpy", copy)
        both = length(copying) + length(computing) - length(merged([*copying, *computing]))
        assert both > 0.3 * length(copying), copy
    assert length(computing) > 0.5 * (computing[-1][1] - computing[0][0])
