"""What a trace of a loaded worker shows: the streams of neighbouring batches run side by side."""

import asyncio
import json
from pathlib import Path

import numpy as np

from app.cli.offline import profile
from models.domain.image import Image
from models.settings import Settings
from workers.backends.in_process import LocalBackend
from workers.engines.cuda.engine import CudaEngine
from workers.engines.tracing import traced
from workers.filters.registry import parse_chain
from workers.operations import Classify, FilterChain
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker
from workers.supervision.profiling import Utilisation, keep_busy, utilisation

SLOW = FilterChain(parse_chain([{"name": "median", "size": 31}] * 32))
"""The computation takes about 20 ms a batch on an H200, four times what the host needs to prepare
the batch. Only then does the next batch wait for the device, and only then can the download of one
batch run beside the computation of the next.
"""


def under_load(engine: CudaEngine, path: Path) -> Utilisation:
    """Return how the device was used in two seconds of slow filters, traced to `path`."""
    random = np.random.default_rng(0)
    images = [Image(random.integers(0, 256, (1080, 1920, 3), np.uint8)) for _ in range(4)]
    worker = Worker(engine, BatchLimits(max_batch_size=2, max_batch_pixels=1 << 30))
    worker.start()
    # The first batches also load kernels and allocate memory, so they are not traced.
    asyncio.run(keep_busy(LocalBackend(worker), SLOW, images, 1.0))
    with traced(path):
        asyncio.run(keep_busy(LocalBackend(worker), SLOW, images, 2.0))
    worker.stop()
    found = utilisation(json.loads(path.read_text()))
    assert found is not None
    return found


def test_uploads_and_downloads_happen_while_neighbours_are_computed(tmp_path: Path) -> None:
    found = under_load(CudaEngine([], 2, 8_000_000, "cuda:0"), tmp_path / "trace.json")
    assert found.overlap["upload"] > 0.3, found
    assert found.overlap["download"] > 0.3, found
    assert found.busy > 0.5, found


def test_the_command_writes_a_trace_that_names_the_stages(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    said = profile(Settings(weights="bundled"), Classify(), 0.3, path)
    assert said["device"] == "cuda:0"
    assert said["images_per_second"] > 0
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"upload", "compute", "download", "crop_normalise_16"} <= names
