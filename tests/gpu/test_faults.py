"""What goes wrong on a device: who is harmed, who is not, and how the process ends."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import torch

from models.domain.errors import InternalError
from models.domain.image import Image
from models.domain.job import Completed, Job
from tests.pictures import as_image
from workers.backends.in_process import LocalBackend
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.slot import GpuSlot
from workers.filters.registry import parse_chain
from workers.operations import FilterChain
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

INVERT = FilterChain(parse_chain([{"name": "invert"}]))
LIMITS = BatchLimits(max_batch_size=8, max_batch_pixels=1 << 30, max_queue_delay=0.5)


def image(value: int, side: int = 100) -> Image:
    """Return a square image of one level, uint8 (side, side, 3)."""
    return Image(np.full((side, side, 3), value, np.uint8))


def answers(engine: CudaEngine, images: list[Image]) -> list[Completed | BaseException]:
    """Return the answers of a worker to the images, which form one batch."""

    async def asked() -> list[Completed | BaseException]:
        worker = Worker(engine, LIMITS)
        worker.start()
        backend = LocalBackend(worker)
        try:
            jobs = (backend.run(Job(INVERT, each)) for each in images)
            return await asyncio.gather(*jobs, return_exceptions=True)
        finally:
            await backend.aclose()

    return asyncio.run(asked())


class Moody(CudaEngine):
    """Runs out of memory for batches of more than `most` images; one image is always too much."""

    most = 2

    def launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        images = [as_image(job.image) for job in jobs]
        if len(jobs) > self.most or any(each.pixels[0, 0, 0] == 66 for each in images):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        super().launch(slot, jobs)


def test_out_of_memory_splits_the_batch_and_only_the_guilty_image_fails() -> None:
    engine = Moody([], 8, 1_000_000, "cuda:0")
    values = [1, 2, 3, 66, 5, 6, 7, 8]
    for value, found in zip(values, answers(engine, [image(v) for v in values]), strict=True):
        if value == 66:
            assert isinstance(found, InternalError)
        else:
            assert isinstance(found, Completed)
            assert isinstance(found.result, Image)
            assert (found.result.pixels == 255 - value).all()


def test_a_batch_larger_than_a_slot_is_split_and_answered() -> None:
    engine = CudaEngine([], 8, 100_000, "cuda:0")
    found = answers(engine, [image(n, 300) for n in range(8)])
    assert all(isinstance(each, Completed) for each in found)


STICKY = """
import cupy, numpy as np, torch
from tests.gpu.test_faults import answers, image
from workers.engines.cuda.engine import CudaEngine
from models.domain.errors import WorkerLost

class Broken(CudaEngine):
    def launch(self, slot, jobs):
        bad = cupy.RawKernel('extern "C" __global__ void bad(int* p) { *p = 1; }', "bad")
        bad((1,), (1,), (np.uint64(8),))
        super().launch(slot, jobs)

found = answers(Broken([], 8, 1_000_000, "cuda:0"), [image(1), image(2), image(3)])
assert all(isinstance(each, WorkerLost) for each in found), found
print("all were answered", flush=True)
import os
os._exit(0)
"""


def test_a_sticky_error_answers_everybody_and_ends_the_worker() -> None:
    command = [sys.executable, "-c", STICKY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "all were answered" in done.stdout, done.stderr[-2000:]
