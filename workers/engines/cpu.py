"""The engine of a machine without a GPU, and the specification the kernels are tested against.

Upload is preprocessing (launch thread), compute is the forward pass or the filters (collect
thread), so that neighbouring batches overlap. All torch calls come from the collect thread: two
OpenMP pools in one process would oversubscribe the cores.
"""

import ctypes
import queue
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from models.errors import WeightsMissing
from models.image import Image, Pixels
from models.job import Job, Labels
from models.weights import RESNET18_PREPROCESSING
from workers.engine import BatchResult
from workers.engines.resnet18 import ResNet18
from workers.operations import Classify, FilterChain, FunctionToApply
from workers.preprocess import crop

FORWARD_SHARE = 0.6
"""Share of the cores for the forward pass of a batch: what it costs of an image's whole CPU time
(5.8 of 9.6 ms, bf16). The others decode and preprocess meanwhile; more OpenMP threads than cores
would wait for each other at every layer."""

SLOTS = 2
"""One batch is preprocessed while the one before is computed; a third would only wait."""


@dataclass(slots=True, eq=False)
class CpuSlot:
    """A staging slot: the crops of one batch, and what launch left for collect."""

    crops: Pixels
    jobs: Sequence[Job] = field(default_factory=tuple)
    upload: float = 0.0


class CpuEngine:
    """Classifies with `network` (None: there are no weights) and filters, on `threads` cores."""

    device = "cpu"

    def __init__(self, network: ResNet18 | None, max_batch_size: int, threads: int) -> None:
        _keep_freed_memory()
        self._threads = threads
        self._shared_threads = max(1, round(threads * FORWARD_SHARE))
        cv2.setNumThreads(threads)
        side = RESNET18_PREPROCESSING.crop
        self._network = network
        self._pool = ThreadPoolExecutor(threads, "filter")
        self._free: queue.SimpleQueue[CpuSlot | None] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put(CpuSlot(np.empty((max_batch_size, side, side, 3), np.uint8)))

    def acquire(self) -> CpuSlot | None:
        """A free staging slot, waiting for one; None once the engine is closed."""
        slot = self._free.get()
        if slot is None:
            self._free.put(None)
        return slot

    def launch(self, slot: CpuSlot, jobs: Sequence[Job]) -> None:
        """Preprocess the batch into the slot; nothing to do for filters."""
        start = time.monotonic()
        if isinstance(jobs[0].operation, Classify) and self._network is not None:
            for target, job in zip(slot.crops, jobs, strict=False):
                target[:] = crop(job.image, RESNET18_PREPROCESSING)
        slot.jobs, slot.upload = jobs, time.monotonic() - start

    def collect(self, slot: CpuSlot) -> BatchResult:
        """Compute the batch: one value per job, in order."""
        start = time.monotonic()
        values: list[Labels | Image | WeightsMissing]
        if not isinstance(slot.jobs[0].operation, Classify):
            values = list(self._pool.map(_filtered, slot.jobs))
        elif self._network is None:
            values = [WeightsMissing("no weights are loaded") for _ in slot.jobs]
        else:
            logits = self._forward(self._network, slot.crops[: len(slot.jobs)])
            values = [_labels(row, job) for row, job in zip(logits, slot.jobs, strict=True)]
        return BatchResult(values, slot.upload, time.monotonic() - start, 0.0)

    def _forward(self, network: ResNet18, crops: Pixels) -> NDArray[np.float32]:
        """An image alone gets every core; beside a batch, others are being decoded right now."""
        torch.set_num_threads(self._threads if len(crops) == 1 else self._shared_threads)
        return network.logits(crops)

    def release(self, slot: CpuSlot) -> None:
        """Give the slot back; its images are let go."""
        slot.jobs = ()
        self._free.put(slot)

    def warm_up(self) -> None:
        """Forward passes of one image and of the largest batch: the first request pays for none."""
        slot = self.acquire()
        if self._network is not None and slot is not None:
            slot.crops.fill(0)
            self._forward(self._network, slot.crops)
            self._forward(self._network, slot.crops[:1])
        if slot is not None:
            self.release(slot)

    def close(self) -> None:
        """Wake whoever waits for a slot and end the pool."""
        self._free.put(None)
        self._pool.shutdown()


def _filtered(job: Job) -> Image:
    assert isinstance(job.operation, FilterChain)
    pixels = job.image.pixels
    for each in job.operation.filters:
        pixels = each.apply(pixels)
    return Image(pixels)


def _labels(logits: NDArray[np.float32], job: Job) -> Labels:
    assert isinstance(job.operation, Classify)
    scores = _scores(logits, job.operation.function_to_apply)
    best = np.argsort(-scores, kind="stable")[: job.operation.top_k]
    return Labels(tuple(best.tolist()), tuple(scores[best].tolist()))


def _scores(logits: NDArray[np.float32], function: FunctionToApply) -> NDArray[np.float32]:
    if function is FunctionToApply.SOFTMAX:
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())
    if function is FunctionToApply.SIGMOID:
        return np.float32(1) / (np.float32(1) + np.exp(-logits))
    return logits


def _keep_freed_memory() -> None:
    """Tell glibc not to give a batch's buffers back to the kernel after every forward pass.

    Taking the page faults again costs a fifth of the time of a forward pass.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        libc.mallopt(mmap_threshold, 256 << 20)
        libc.mallopt(trim_threshold, 512 << 20)
