"""The engine of an NVIDIA GPU: staging slots pass through its streams in turn.

`launch` only starts work and `collect` waits for it. While a batch is computed, the next batch is
uploaded and decoded, and filtered images of the batch before are downloaded. Nothing is allocated
while serving.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from models.codec import Encoding, ImageFormat, encode, pixels_of
from models.codec.encoder import Chroma
from models.codec.jpeg import inspect
from models.domain.errors import ServiceError, WeightsMissing
from models.domain.image import Image, Jpeg, NetworkInput, Pixels, Subsampling
from models.domain.job import Job, Operation, Result
from models.networks.registry import RESNET18
from models.networks.spec import NetworkSpec
from workers.engines.cuda.classifying import Classifying, Cropper, weights_bytes
from workers.engines.cuda.filtering import GpuFiltering
from workers.engines.cuda.jpeg_blocks import JpegBlocks, ReadableMemory
from workers.engines.cuda.jpeg_encoder import EXACT
from workers.engines.cuda.kernels import Kernels
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.cuda.nvjpeg import Decoder, SharedStates, hardware_decoder, shared_sizes
from workers.engines.cuda.slot import GpuSlot, Marks, Outputs, Region, Streams, Tables, times
from workers.filters.registry import parse_one
from workers.kernels.cubins import CubinStore
from workers.operations import Classify, DeviceJpeg, FilterChain, NetworkOutput
from workers.scheduling.engine import BatchResult, EngineLost

# The test of a GPU's engine before it serves: every kind of batch in every slot.  Each slot owns
# memory, events and a decoder, so work that succeeds in one may fail in another. The slots are
# tested one by one and never taken from the queue of free slots: that queue gives the same slot
# to the same kind whenever the number of kinds is a multiple of the number of slots.

SlotT = TypeVar("SlotT")


def run_self_test(
    slots: Sequence[SlotT],
    batches: Mapping[str, Sequence[Job]],
    launch: Callable[[SlotT, Sequence[Job]], None],
    collect: Callable[[SlotT], BatchResult],
    clear: Callable[[SlotT], None],
) -> None:
    """Run every batch in every slot; RuntimeError when an answer is an error or is missing."""
    for number, slot in enumerate(slots):
        for name, jobs in batches.items():
            launch(slot, jobs)
            values = collect(slot).values
            clear(slot)
            wrong = [f"{v.code}: {v.detail}" for v in values if isinstance(v, ServiceError)]
            if wrong or len(values) != len(jobs):
                problem = wrong[0] if wrong else f"{len(values)} answers came"
                raise RuntimeError(f"{name}, in slot {number}: {problem}")


def batches_of(
    image: Image,
    files: Sequence[Jpeg],
    networks: Iterable[NetworkSpec],
    file_counts: Collection[int],
) -> dict[str, list[Job]]:
    """Return a batch of every kind: filtered pixels and files, each output of each network, an
    input that was preprocessed, and each of the files, as many at a time as `file_counts` says.

    Files are classified where there is a network: that downloads less than filtered pixels.
    """
    operation: Operation = FilterChain((parse_one("invert", {}),))
    found = {"filtered pixels": [Job(operation, image)]}
    if file_counts:
        found |= {f"filtered files of {each.subsampling}": [Job(operation, each)] for each in files}
    for spec in networks:
        operation = Classify(network=spec.name)
        for output in NetworkOutput:
            job = Job(replace(operation, output=output), image)
            found[f"{output} of {spec.name}"] = [job]
        values = np.zeros((3, spec.preprocessing.crop, spec.preprocessing.crop), np.float32)
        job = Job(replace(operation, preprocessed=True), NetworkInput(values))
        found[f"an input of {spec.name}"] = [job]
    for n in file_counts:
        found |= {f"{n} files of {each.subsampling}": [Job(operation, each)] * n for each in files}
    return found


def samples(side: int) -> tuple[Image, list[Jpeg]]:
    """Return a square image of noise, uint8 (side, side, 3), and a JPEG of each subsampling.

    A JPEG of noise has as many bytes as a photo or more: the decoder's memory for files grows with
    the first large file.
    """
    image = Image(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))
    return image, [_jpeg(image, "420"), _jpeg(image, "422"), _jpeg(image, "444")]


def _jpeg(image: Image, chroma: Chroma) -> Jpeg:
    data = encode(image, ImageFormat.JPEG, Encoding(chroma=chroma))
    found = inspect(data)  # a front end would not see the end of noise, and decode it itself
    assert found is not None
    stream = np.frombuffer(data, np.uint8, found.length)
    return Jpeg(stream, found.height, found.width, 1, found.subsampling)


# Decide whether a device can still be used after an error.


def diagnosed(error: Exception, device: torch.device) -> Exception:
    """Return the error itself, or EngineLost where it is sticky: every later call fails then.

    This waits for everything that was launched, so that nothing uses a failed batch's memory any
    more.
    """
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as sticky:
        lost = EngineLost(f"{device} is lost: {str(sticky).splitlines()[0]}")
        lost.__cause__ = error
        return lost
    return error


log = logging.getLogger("darkroom.cuda")

SLOTS = 3
BYTES_PER_PIXEL = 4
SCRATCH_PER_BYTE = 4
"""Filters may keep 32 bits of every sample between two passes."""

TYPICAL_SIDE = 512
"""Pixels a side of the images of the warm-up: the decoder's own memory grows with its images."""

FFT_PLANS = 32
"""Plans that cuFFT keeps, each with tables of up to megabytes; torch would keep 4,096."""

SLACK = 1 << 16
"""Bytes that an image may need beyond its pixels, because rows and planes are aligned."""


class CudaEngine:
    """Runs `networks` and filters on `device`; networks without weights are left out.

    Batches have at most `max_batch_size` images and `max_pixels` pixels. `cubins` holds compiled
    kernels, by default in the user's cache folder. `degraded` names the missing part of this
    machine.
    """

    def __init__(
        self,
        networks: Sequence[GraphedNetwork],
        max_batch_size: int,
        max_pixels: int,
        device: str,
        cubins: CubinStore | None = None,
    ) -> None:
        torch.cuda.set_device(device)
        self.device = device
        self.collectors = SLOTS
        self._networks = networks
        self._max_batch_size = max_batch_size
        self._side = min(TYPICAL_SIDE, math.isqrt(max_pixels // max_batch_size))
        self._torch_device = torch.device(device)
        torch.backends.cuda.cufft_plan_cache.max_size = FFT_PLANS
        self._streams = Streams(self._torch_device)
        self._nvjpeg, self.degraded = hardware_decoder()
        log.info("torch %s is built for CUDA %s", torch.__version__, torch.version.cuda)
        kernels = Kernels(cubins)
        self._classifying: dict[str, Classifying] = {}
        for network in networks:
            cropper = Cropper(kernels, network.spec.preprocessing, network.table)
            self._classifying[network.spec.name] = Classifying(network, cropper, self._streams)
        room = BYTES_PER_PIXEL * max_pixels + SLACK * max_batch_size
        filtered = Region(SCRATCH_PER_BYTE * room, self._torch_device)
        self._filtering = GpuFiltering(kernels, self._streams, filtered)
        self._room = room
        self._states = SharedStates()
        self._readable = ReadableMemory(self._torch_device)
        self._launching = threading.Lock()
        self._free: queue.SimpleQueue[GpuSlot | None] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put(self._slot())

    @property
    def takes_jpegs(self) -> bool:
        """Return whether this GPU has engines that decode JPEGs."""
        return self._nvjpeg is not None

    def share(self, memory: Pixels, n_bytes: int) -> None:
        """Let the device read JPEGs in the first bytes of `memory` where they are."""
        self._readable.add(memory, n_bytes)

    def acquire(self) -> GpuSlot | None:
        """Wait for a free staging slot and return it; None once the engine is closed."""
        slot = self._free.get()
        if slot is None:
            # Each waiting thread passes the end on, so that one `close` wakes them all.
            self._free.put(None)
        return slot

    def launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        """Start the batch on the streams; raises EngineLost after a sticky error."""
        torch.cuda.set_device(self._torch_device)
        slot.jobs = jobs
        try:
            with self._launching:
                self._launch(slot, jobs)
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error

    def _launch(self, slot: GpuSlot, jobs: Sequence[Job]) -> None:
        operation = jobs[0].operation
        if not isinstance(operation, Classify):
            self._filtering.launch(slot, jobs)
        elif (through := self._classifying.get(operation.network)) is not None:
            through.launch(slot, jobs)
        else:  # nothing runs on the device: `collect` answers with this
            slot.refusal = WeightsMissing("no weights are loaded")

    def collect(self, slot: GpuSlot) -> BatchResult:
        """Wait for the slot's last event. This is the only place that waits for the device."""
        if slot.refusal is not None:
            return BatchResult([slot.refusal] * len(slot.jobs), 0.0, 0.0, 0.0)
        try:
            slot.marks.done.synchronize()
            upload, decode, compute, download = times(slot.marks)
            # Building results is part of the download: they are copied out of pinned memory here.
            started = time.monotonic()
            values = self._values(slot)
            if damaged := slot.jpeg_blocks.damaged():
                self._decode_here(slot, damaged, values)
            download += time.monotonic() - started
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error
        return BatchResult(values, upload, compute, download, decode)

    def release(self, slot: GpuSlot) -> None:
        """Give the slot back and drop its references to images."""
        slot.clear()
        self._free.put(slot)

    def warm_up(self) -> None:
        """Capture the graphs, load the kernels, make all states of the JPEG decoders, and run
        batches of every kind in every slot: no batch pays for any of that afterwards.

        The device encodes JPEGs from now on if its files have the bytes of the CPU's. Raises
        RuntimeError when a batch gives an error. Nothing else may use the engine yet.
        """
        for network in self._networks:
            network.capture(self._streams.compute)
        most = self._max_batch_size
        counts = [*shared_sizes(most), most] if self._nvjpeg is not None else []
        if self._nvjpeg is not None:
            for n in shared_sizes(most):
                self._states.add(n, self._nvjpeg.state(n))
        specs = [each.spec for each in self._networks]
        batches = batches_of(*samples(self._side), specs, counts)
        slots = [slot for slot in (self._free.get() for _ in range(SLOTS)) if slot is not None]
        try:
            run_self_test(slots, batches, self.launch, self.collect, GpuSlot.clear)
            self._filtering.encodes = self._encodes_alike(slots[0])
        finally:
            for slot in slots:
                self.release(slot)

    def _encodes_alike(self, slot: GpuSlot) -> bool:
        """Return whether the device encodes images with the bytes of the CPU, by either DCT.

        Another version of libjpeg-turbo may write other bytes; then the CPU encodes all images.
        """
        image, _ = samples(self._side)
        for quality in (EXACT - 1, EXACT):
            chain = FilterChain((parse_one("invert", {}),), DeviceJpeg(quality, Subsampling.S420))
            self.launch(slot, [Job(chain, image)])
            (found,) = self.collect(slot).values
            slot.clear()
            expected = encode(Image(255 - image.pixels), ImageFormat.JPEG, Encoding(quality))
            if not isinstance(found, Jpeg) or found.data.tobytes() != expected:
                log.warning("JPEGs are encoded on the CPU: the GPU's differ at quality %d", quality)
                return False
        return True

    def close(self) -> None:
        """Wake the threads that wait for a slot."""
        self._free.put(None)

    def _decode_here(
        self, slot: GpuSlot, damaged: Sequence[int], values: list[Result | ServiceError]
    ) -> None:
        """Replace the values of JPEGs that the decode engines may have decoded wrongly.

        The CPU decodes them: a refused file is answered with its error, and a file that it reads
        goes to the device again as pixels, in the same slot.
        """
        again: dict[int, Job] = {}
        for index in damaged:
            job = slot.jobs[index]
            try:
                again[index] = replace(job, image=pixels_of(job.image))
            except ServiceError as error:
                values[index] = error
        if again:
            slot.clear()
            self.launch(slot, [*again.values()])
            slot.marks.done.synchronize()
            for index, value in zip(again, self._values(slot), strict=True):
                values[index] = value

    def _values(self, slot: GpuSlot) -> list[Result | ServiceError]:
        operation = slot.jobs[0].operation
        values: list[Result | ServiceError]
        if isinstance(operation, Classify):
            values = [*self._classifying[operation.network].results(slot, slot.jobs)]
        else:
            values = [*self._filtering.results(slot)]
        for index, error in slot.failed.items():
            values[index] = error
        return values

    def _slot(self) -> GpuSlot:
        device, room, batch = self._torch_device, self._room, self._max_batch_size
        own = [network.spec.preprocessing for network in self._networks]
        preprocessings = [RESNET18.preprocessing, *own]
        weights = weights_bytes(room // BYTES_PER_PIXEL, batch, preprocessings)
        return GpuSlot(
            first=Region(room, device),
            second=Region(room, device),
            weights=Region(weights, device),
            tables=Tables(device),
            host=torch.empty(room, dtype=torch.uint8, pin_memory=True),
            outputs={
                each.spec.name: Outputs(batch, each.n_classes, each.spec.features, device)
                for each in self._networks
            },
            marks=Marks(),
            jpeg_blocks=JpegBlocks(batch, room // BYTES_PER_PIXEL, device, self._readable),
            decoder=None
            if self._nvjpeg is None
            else Decoder(self._nvjpeg, self._max_batch_size, self._states),
            uploads=self._streams.upload,
        )
