"""The engine of one NVIDIA GPU: staging slots pass through three streams, one behind the other.

`launch` only starts work and `collect` waits for it, so while one batch is computed the next is
uploaded and decoded, and the one before is downloaded. Nothing is allocated while serving.
"""

import logging
import math
import queue
import time
from collections.abc import Sequence

import numpy as np
import torch
from cuda.pathfinder import DynamicLibNotFoundError

from models.codec import ImageFormat, encode, encoded
from models.domain.errors import ServiceError, WeightsMissing
from models.domain.image import Image
from models.domain.job import Job, Result
from models.weights import RESNET18_PREPROCESSING
from workers.engines.cuda.classifying import Classifying
from workers.engines.cuda.crops import Cropper
from workers.engines.cuda.encoding import as_jpegs
from workers.engines.cuda.filtering import Filtering
from workers.engines.cuda.lost import diagnosed
from workers.engines.cuda.modules import Kernels
from workers.engines.cuda.network import GraphedResNet18
from workers.engines.cuda.nvjpeg import NvJpeg, NvJpegError, filled_up
from workers.engines.cuda.self_test import Kind, run_self_test, sizes
from workers.engines.cuda.slot import ALIGNMENT, Marks, Region, Slot, Tables
from workers.engines.cuda.streams import Streams, times
from workers.filters.registry import parse_one
from workers.operations import Classify, FilterChain
from workers.scheduling.engine import BatchResult

log = logging.getLogger("darkroom.cuda")

SLOTS = 3
BYTES_PER_PIXEL = 4
SCRATCH_PER_BYTE = 4
"""Filters may keep 32 bits of every sample between two passes."""

TYPICAL_SIDE = 512
"""Pixels of the images of the warm-up: the decoder's own memory grows with what it meets."""

SLACK = 1 << 16
"""Bytes an image may take up beyond its pixels: rows and planes are aligned."""


class CudaEngine:
    """Classifies with `network` (None: there are no weights) and filters, on `device`.

    Batches have at most `max_batch_size` images and `max_pixels` pixels.
    """

    def __init__(
        self,
        network: GraphedResNet18 | None,
        max_batch_size: int,
        max_pixels: int,
        device: str,
    ) -> None:
        torch.cuda.set_device(device)
        self.device = device
        self.collectors = SLOTS
        self._network = network
        self._max_batch_size = max_batch_size
        self._side = min(TYPICAL_SIDE, math.isqrt(max_pixels // max_batch_size))
        self._torch_device = torch.device(device)
        self._streams = Streams(self._torch_device)
        self._nvjpeg = _decoder()
        kernels = Kernels()
        self._classifying = None
        if network is not None:
            cropper = Cropper(kernels, RESNET18_PREPROCESSING, network.table)
            self._classifying = Classifying(network, cropper, self._streams)
        room = BYTES_PER_PIXEL * max_pixels + SLACK * max_batch_size
        scratch = Region(SCRATCH_PER_BYTE * room, self._torch_device)
        self._filtering = Filtering(kernels, self._streams, scratch)
        self._free: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put(self._slot(room, max_batch_size))

    @property
    def takes_jpegs(self) -> bool:
        """Whether this GPU has engines that decode JPEGs."""
        return self._nvjpeg is not None

    def acquire(self) -> Slot | None:
        """A free staging slot, waiting for one; None once the engine is closed."""
        slot = self._free.get()
        if slot is None:
            self._free.put(None)
        return slot

    def launch(self, slot: Slot, jobs: Sequence[Job]) -> None:
        """Start the batch on the three streams; raises EngineLost after a sticky error."""
        torch.cuda.set_device(self._torch_device)
        slot.jobs = jobs
        try:
            if not isinstance(jobs[0].operation, Classify):
                self._filtering.launch(slot, jobs)
            elif self._classifying is not None:
                self._classifying.launch(slot, jobs)
            else:  # nothing runs on the device: `collect` answers with this
                slot.refusal = WeightsMissing("no weights are loaded")
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error

    def collect(self, slot: Slot) -> BatchResult:
        """Wait for the slot's last event, the only place that waits for the device."""
        if slot.refusal is not None:
            return BatchResult([slot.refusal] * len(slot.jobs), 0.0, 0.0, 0.0)
        try:
            slot.marks.done.synchronize()
            upload, decode, compute, download = times(slot.marks)
            started = time.monotonic()
            values = self._values(slot)
            download += time.monotonic() - started
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error
        return BatchResult(values, upload, compute, download, decode)

    def release(self, slot: Slot) -> None:
        """Give the slot back; its images are let go."""
        slot.clear()
        self._free.put(slot)

    def warm_up(self) -> None:
        """Capture the graphs, load the kernels, run batches of every kind in every slot.

        Raises SelfTestFailed when one of them gives an error. Nothing else may use the engine yet.
        """
        if self._network is not None:
            self._network.capture(self._streams.compute)
        slots = [slot for slot in (self._free.get() for _ in range(SLOTS)) if slot is not None]
        try:
            run_self_test(slots, self._kinds(), self.launch, self.collect, Slot.clear)
        finally:
            for slot in slots:
                self.release(slot)

    def _kinds(self) -> list[Kind]:
        """Every kind of batch: pixels that are filtered and classified, files in all sizes."""
        grey = Image(np.full((self._side, self._side, 3), 128, np.uint8))
        file = encoded(encode(grey, ImageFormat.JPEG), max_pixels=grey.n_pixels)
        filtering = FilterChain((parse_one("invert", {}),))
        kinds = [Kind("filtered pixels", Job(filtering, grey), 1)]
        if self._classifying is not None:
            kinds.append(Kind("classified pixels", Job(Classify(), grey), 1))
        if file is not None and self.takes_jpegs:
            job = Job(filtering, file.image)
            few = sizes(self._max_batch_size, filled_up)
            kinds += [Kind("filtered files", job, size) for size in few]
        return kinds

    def close(self) -> None:
        """Wake whoever waits for a slot."""
        self._free.put(None)

    def _values(self, slot: Slot) -> Sequence[Result | ServiceError]:
        values: list[Result | ServiceError]
        operation = slot.jobs[0].operation
        if self._classifying is not None and isinstance(operation, Classify):
            values = [*self._classifying.results(slot, slot.jobs)]
        elif isinstance(operation, FilterChain) and operation.jpeg is not None:
            with torch.cuda.device(self._torch_device):
                values = as_jpegs(slot, operation.jpeg)
        else:
            values = [*self._filtering.results(slot)]
        for index, error in slot.failed.items():
            values[index] = error
        return values

    def _slot(self, room: int, max_batch_size: int) -> Slot:
        device = self._torch_device
        n_classes = 0 if self._network is None else self._network.n_classes
        shape = (max_batch_size, 3, n_classes)
        return Slot(
            first=Region(room, device),
            second=Region(room, device),
            weights=Region(_weights(room, max_batch_size), device),
            tables=Tables(device),
            host=torch.empty(room, dtype=torch.uint8, pin_memory=True),
            scores=torch.zeros(shape, device=device),
            scores_host=torch.zeros(shape, pin_memory=True),
            marks=Marks.made(),
            decoder=None if self._nvjpeg is None else self._nvjpeg.decoder(),
        )


def _weights(room: int, max_batch_size: int) -> int:
    """Bytes for the resampling weights of any batch: 2 · 224 · (2 + taps) integers an image.

    An image of p pixels has at most 2 · sqrt(p) / 256 + 3 taps; the sum of the roots is largest
    when all images of a batch are equal.
    """
    pixels = room // BYTES_PER_PIXEL
    spec = RESNET18_PREPROCESSING
    taps = 6 * max_batch_size + 2 * math.isqrt(max_batch_size * pixels) // spec.resize
    return 2 * 4 * spec.crop * taps + ALIGNMENT * max_batch_size


def _decoder() -> NvJpeg | None:
    """The decode engines; None on GPUs without, where front ends decode."""
    try:
        return NvJpeg()
    except (NvJpegError, DynamicLibNotFoundError) as error:
        log.info("JPEGs are decoded on the CPU: %s", error)
        return None
