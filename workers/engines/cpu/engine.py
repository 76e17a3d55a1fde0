"""The engine of a machine without a GPU, and the specification the kernels are tested against.

A batch is computed by the collect thread that waits for it, on one core; every core has such a
thread. Side by side they never wait for each other, as OpenMP threads do at every layer, and a slow
filter holds one core, not its neighbours. Only an image alone is spread over all cores: by a
thread that keeps their OpenMP team warm, and by OpenCV, whose threads serve one call at a time.
"""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from models.codec import pixels_of
from models.domain.errors import FieldError, InvalidParameter, WeightsMissing
from models.domain.image import Image, Pixels
from models.domain.job import Job, Labels
from models.weights import RESNET18_PREPROCESSING
from workers.operations import Classify, FilterChain, FunctionToApply
from workers.preprocess import crop
from workers.scheduling.engine import BatchResult

if TYPE_CHECKING:
    from workers.engines.cpu.forward import ForwardPasses
    from workers.engines.resnet18 import ResNet18


@dataclass(slots=True, eq=False)
class CpuSlot:
    """A staging slot: the crops of one batch and its jobs."""

    crops: Pixels
    jobs: Sequence[Job] = ()


class CpuEngine:
    """Classifies with `network` (None: there are no weights) and filters, on `threads` cores.

    `max_batch_size` bounds the batches it will be given.
    """

    device = "cpu"
    takes_jpegs = False

    def __init__(self, network: "ResNet18 | None", max_batch_size: int, threads: int) -> None:
        self.collectors = threads
        self._passes = None if network is None else _passes(network, threads)
        self._counting = threading.Lock()
        self._computing: dict[int, float] = {}
        self._spent = 0.0
        self._free: queue.SimpleQueue[CpuSlot | None] = queue.SimpleQueue()
        side = RESNET18_PREPROCESSING.crop
        for _ in range(threads):
            self._free.put(CpuSlot(np.empty((max_batch_size, side, side, 3), np.uint8)))

    def acquire(self) -> CpuSlot | None:
        """A free staging slot, waiting for one; None once the engine is closed."""
        slot = self._free.get()
        if slot is None:
            self._free.put(None)
        return slot

    def launch(self, slot: CpuSlot, jobs: Sequence[Job]) -> None:
        """Leave the batch to the collect thread."""
        slot.jobs = jobs

    def collect(self, slot: CpuSlot) -> BatchResult:
        """Compute the batch: upload is preprocessing, compute the forward pass or the filters."""
        with self._counted():
            start = time.monotonic()
            classifies = isinstance(slot.jobs[0].operation, Classify)
            if classifies and self._passes is not None:
                for target, job in zip(slot.crops, slot.jobs, strict=False):
                    target[:] = crop(pixels_of(job.image), RESNET18_PREPROCESSING)
            uploaded = time.monotonic()
            values = self._classified(slot) if classifies else [_filtered(j) for j in slot.jobs]
            return BatchResult(values, uploaded - start, time.monotonic() - uploaded, 0.0)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the block among what is computed right now, with this thread's CPU time."""
        thread = threading.get_ident()
        with self._counting:
            self._computing[thread] = time.thread_time()
        try:
            yield
        finally:
            with self._counting:
                self._spent += time.thread_time() - self._computing.pop(thread)

    def progress(self) -> float:
        """CPU seconds of the threads that compute, also of a batch that is not finished."""
        with self._counting:  # a thread in the table has not ended, so its clock exists
            clocks = [(time.pthread_getcpuclockid(t), at) for t, at in self._computing.items()]
            return self._spent + sum(time.clock_gettime(clock) - at for clock, at in clocks)

    def release(self, slot: CpuSlot) -> None:
        """Give the slot back; its images are let go."""
        slot.jobs = ()
        self._free.put(slot)

    def warm_up(self) -> None:
        """Forward passes of one image and of the largest batch: the first request pays for none."""
        slot = self.acquire()
        if slot is None:
            return
        if self._passes is not None:
            slot.crops.fill(0)
            for size in (1, len(slot.crops)):
                with self._counted():
                    self._forward(self._passes, slot.crops[:size])
        self.release(slot)

    def close(self) -> None:
        """Wake the threads that wait for a slot and end the thread of single passes."""
        self._free.put(None)
        if self._passes is not None:
            self._passes.close()

    def _classified(self, slot: CpuSlot) -> Sequence[Labels | WeightsMissing]:
        if self._passes is None:
            return [WeightsMissing("no weights are loaded") for _ in slot.jobs]
        logits = self._forward(self._passes, slot.crops[: len(slot.jobs)])
        return [_labels(row, job) for row, job in zip(logits, slot.jobs, strict=True)]

    def _forward(self, passes: "ForwardPasses", crops: Pixels) -> NDArray[np.float32]:
        """On all cores for one image when nothing else is computed, else on this one."""
        if len(crops) == 1 and len(self._computing) == 1:
            return passes.on_all_cores(crops)
        return passes.on_this_core(crops)


def _passes(network: "ResNet18", threads: int) -> "ForwardPasses":
    """Import torch only with a network: filters alone need none, and it takes seconds."""
    from workers.engines.cpu.forward import ForwardPasses

    return ForwardPasses(network, threads)


def _filtered(job: Job) -> Image | InvalidParameter:
    assert isinstance(job.operation, FilterChain)
    if job.operation.jpeg is not None:
        wrong = FieldError("encoder", "there is no GPU to encode with; leave it out", "gpu")
        return InvalidParameter(f"encoder: {wrong.message}", [wrong])
    pixels = pixels_of(job.image).pixels
    for each in job.operation.steps:
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
