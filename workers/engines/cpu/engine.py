"""The engine of a machine without a GPU, and the specification the kernels are tested against.

A batch is computed by the collect thread that waits for it, on its core; every core has a collect
thread. Batches side by side never wait for each other, as OpenMP threads do at every layer, and a
slow filter holds one core, not its neighbours. Only an image alone is spread over all cores: by a
thread that keeps their OpenMP team warm, and by OpenCV, whose threads serve a single call at a
time.

Vectors (logits and embeddings) are computed image by image, on the core of the thread. The last
bits of a sum depend on the batch size and on the number of cores, and the same image must always
give the same vector, whatever else the server is doing.
"""

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from models.codec import pixels_of
from models.domain.errors import (
    DeadlineExceeded,
    ServiceError,
    WeightsMissing,
)
from models.domain.image import Image, Jpeg, NetworkInput, Pixels
from models.domain.job import Job, Labels, Result, Vector
from models.malloc import return_freed_memory
from models.networks.spec import NetworkSpec
from workers.filters import bands
from workers.filters.interruption import ending_at, stop_if_late
from workers.operations import Classify, FilterChain, FunctionToApply, NetworkOutput
from workers.preprocess import crop
from workers.scheduling.engine import BatchResult

if TYPE_CHECKING:
    from workers.engines.cpu.network import CpuNetwork, Forward, ForwardPasses


Crops = Pixels | NDArray[np.float32]
"""Crops, uint8 (n, crop, crop, 3), or the same normalised, float32 (n, 3, crop, crop)."""


@dataclass(slots=True, eq=False)
class CpuSlot:
    """A staging slot: the crops of a batch, uint8 (n, crop, crop, 3), and its jobs.

    `memory` has room for the crops of the largest batch of any network. Crops that came
    preprocessed are float32 (n, 3, crop, crop), in memory of their own.
    """

    memory: Pixels
    crops: Crops
    jobs: Sequence[Job] = ()


def placed(slot: CpuSlot, spec: NetworkSpec) -> Crops:
    """Return the crops of a slot's jobs for a network."""
    given = [job.image.values for job in slot.jobs if isinstance(job.image, NetworkInput)]
    if given:
        return np.stack(given)
    crops = reserved(slot, spec, len(slot.jobs))
    for target, job in zip(crops, slot.jobs, strict=True):
        target[:] = crop(pixels_of(job.image), spec.preprocessing)
    return crops


def reserved(slot: CpuSlot, spec: NetworkSpec, n: int) -> Pixels:
    """Return the beginning of the slot's memory as `n` crops of a network."""
    side = spec.preprocessing.crop
    return slot.memory[: n * side * side * 3].reshape(n, side, side, 3)


SIDE = 1024
"""Pixels of an image that OpenCV spreads over its threads; one of 256 × 256 it does not."""


def start_filter_threads() -> None:
    """Start the threads of OpenCV with the priority of the calling thread.

    OpenCV starts them with the first image that is large enough and keeps them, and Linux gives a
    thread the priority of the thread that starts it. If that were a thread of the background,
    filters of requests would be computed with a low priority for as long as the process runs.
    """
    cv2.LUT(np.zeros((SIDE, SIDE), np.uint8), np.arange(256, dtype=np.uint8))


# The best classes of an image, of its logits on the CPU.


def labels(logits: NDArray[np.float32], job: Job) -> Labels:
    """Return the labels that a job wants of its logits, float32 (classes,)."""
    assert isinstance(job.operation, Classify)
    scores = _scores(logits, job.operation.function_to_apply)
    # Stable, so that classes of equal scores keep their order, and the same image has the same
    # labels every time.
    best = np.argsort(-scores, kind="stable")[: job.operation.top_k]
    return Labels(tuple(best.tolist()), tuple(scores[best].tolist()))


def _scores(logits: NDArray[np.float32], function: FunctionToApply) -> NDArray[np.float32]:
    if function is FunctionToApply.SOFTMAX:
        # Without the subtraction, which changes no share, exp overflows float32 from 89 on.
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())
    if function is FunctionToApply.SIGMOID:
        return np.float32(1) / (np.float32(1) + np.exp(-logits))
    return logits


CROWDED = 0.5
"""Seconds after two batches were computed side by side in which no image is spread over all cores:
the next neighbour may come while it is computed, and threads that wait for each other at every
layer would then wait for that neighbour too."""


class CpuEngine:
    """Runs `networks` and filters on `threads` cores; networks without weights are left out.

    At most `most` images are in a batch. In the `background` no network spreads an image over all
    cores; OpenCV does, by threads of the usual priority. With `full_batches` every batch of a
    network is computed as a batch of `most`, on a core: oneDNN has different kernels for small
    batches (below 4 on an AMD EPYC), which add up in a different order, so that scores would depend
    on the batch. An image alone then takes as long as a full batch.
    """

    device = "cpu"
    takes_jpegs = False

    def __init__(
        self,
        networks: "Sequence[CpuNetwork]",
        most: int,
        threads: int,
        background: bool = False,
        *,
        full_batches: bool = False,
    ) -> None:
        self.collectors = threads
        self._spreads = not (background or full_batches)
        self._full_batches = full_batches
        self._networks = {network.spec.name: network for network in networks}
        self._passes = _passes(threads) if networks else None
        self._max_batch_size = most
        self._counting = threading.Lock()
        self._computing: dict[int, float] = {}
        self._spent = 0.0
        self._crowded_at = -CROWDED
        self._free: queue.SimpleQueue[CpuSlot | None] = queue.SimpleQueue()
        side = max([network.spec.preprocessing.crop for network in networks], default=0)
        for _ in range(threads):
            memory = np.empty(most * side * side * 3, np.uint8)
            self._free.put(CpuSlot(memory, memory[:0]))

    def share(self, memory: Pixels, n_bytes: int) -> None:
        """Do nothing: threads read any memory."""

    def acquire(self) -> CpuSlot | None:
        """Wait for a free staging slot and return it; None once the engine is closed."""
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
            operation = slot.jobs[0].operation
            network = None
            if isinstance(operation, Classify):
                network = self._networks.get(operation.network)
            if network is not None:
                slot.crops = placed(slot, network.spec)
            uploaded = time.monotonic()
            values: Sequence[Result | ServiceError]
            if isinstance(operation, Classify):
                values = self._classified(slot, network, operation)
            else:
                alone = len(slot.jobs) == 1
                values = [_filtered(job, owned=job.owned and alone) for job in slot.jobs]
            return BatchResult(values, uploaded - start, time.monotonic() - uploaded, 0.0)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the block among the running computations, with this thread's CPU time."""
        thread = threading.get_ident()
        with self._counting:
            self._computing[thread] = time.thread_time()
            if len(self._computing) > 1:
                self._crowded_at = time.monotonic()
        try:
            yield
        finally:
            with self._counting:
                self._spent += time.thread_time() - self._computing.pop(thread)

    def progress(self) -> float:
        """Return the CPU seconds of all computations, also of a batch that is not finished."""
        with self._counting:  # a thread in the table has not ended, so its clock exists
            clocks = [(time.pthread_getcpuclockid(t), at) for t, at in self._computing.items()]
            return self._spent + sum(time.clock_gettime(clock) - at for clock, at in clocks)

    def release(self, slot: CpuSlot) -> None:
        """Give the slot back and drop its references to images."""
        slot.jobs, slot.crops = (), slot.memory[:0]
        self._free.put(slot)

    def warm_up(self) -> None:
        """Run every network on a single image and on the largest batch: no request pays for
        that.
        """
        slot = self.acquire()
        if slot is None:
            return
        for network in self._networks.values():
            crops = reserved(slot, network.spec, self._max_batch_size)
            crops.fill(0)
            for size in {len(crops), len(crops) if self._full_batches else 1}:
                with self._counted():
                    self._logits(network, crops[:size])
            with self._counted():
                self._vectors(network.features, crops[:1])
            if self._passes is not None:
                # The first busy second would otherwise take 60 MB more than the idle server.
                self._passes.side_by_side(network.logits, crops, min(2, self.collectors))
        self.release(slot)

    def close(self) -> None:
        """Wake the threads that wait for a slot and end the thread of single passes."""
        self._free.put(None)
        if self._passes is not None:
            self._passes.close()

    def _classified(
        self, slot: CpuSlot, network: "CpuNetwork | None", operation: Classify
    ) -> Sequence[Labels | Vector | WeightsMissing]:
        if network is None:
            return [WeightsMissing("no weights are loaded") for _ in slot.jobs]
        if operation.output is NetworkOutput.LABELS:
            n, crops = len(slot.jobs), slot.crops
            if self._full_batches and not operation.preprocessed:
                # Beside the crops of a batch that is not full are those of earlier ones.
                crops = reserved(slot, network.spec, self._max_batch_size)
            logits = self._logits(network, crops)[:n]
            return [labels(row, job) for row, job in zip(logits, slot.jobs, strict=True)]
        vectors = operation.output is NetworkOutput.LOGITS
        return self._vectors(network.logits if vectors else network.features, slot.crops)

    def _logits(self, network: "CpuNetwork", crops: Crops) -> NDArray[np.float32]:
        """Compute on this core, or a single image on all cores while nothing else is computed."""
        assert self._passes is not None
        crowded = len(self._computing) > 1 or time.monotonic() - self._crowded_at < CROWDED
        if len(crops) == 1 and not crowded and self._spreads:
            return self._passes.on_all_cores(network.logits, crops)
        return self._passes.on_this_core(network.logits, crops)

    def _vectors(self, forward: "Forward", crops: Crops) -> list[Vector]:
        """Compute each image by itself on this core: its bits do not depend on the batch."""
        assert self._passes is not None
        alone = (crops[index : index + 1] for index in range(len(crops)))
        return [Vector(self._passes.on_this_core(forward, each)[0]) for each in alone]


def _passes(threads: int) -> "ForwardPasses":
    """Import torch only where there is a network: filters alone need none, and it takes seconds."""
    from workers.engines.cpu.network import ForwardPasses

    return ForwardPasses(threads)


def _filtered(job: Job, *, owned: bool = False) -> Image | ServiceError:
    assert isinstance(job.operation, FilterChain)
    pixels = pixels_of(job.image).pixels
    owned = owned or isinstance(job.image, Jpeg)
    try:
        with ending_at(job.deadline):
            for each in job.operation.steps:
                stop_if_late()
                result = bands.apply(each, pixels, overwrite=owned)
                # A filter may return its input, or a view of it.
                owned = owned or not np.may_share_memory(result, pixels)
                pixels = result
    except DeadlineExceeded as error:
        return error.with_traceback(None)
    finally:
        if max(job.image.n_pixels, pixels.shape[0] * pixels.shape[1]) >= bands.LARGE:
            return_freed_memory()  # of bands, which encoding the result would stand beside
    # What follows may overwrite a result, but not a source that others read.
    return Image(pixels if owned else pixels.copy())
