"""The engine of one NVIDIA GPU: staging slots pass through three streams, one after the other.

`launch` only starts work and `collect` waits for it. While one batch is computed, the next one is
uploaded and decoded, and the one before is downloaded. Nothing is allocated while serving, except
by embeddings, which run without a graph.
"""

import itertools
import logging
import math
import queue
import time
from collections.abc import Sequence

import torch
from cuda.pathfinder import DynamicLibNotFoundError

from models.domain.errors import ServiceError, WeightsMissing
from models.domain.image import Image, Jpeg
from models.domain.job import Job, Result
from models.networks.resnet18 import RESNET18
from workers.engines.cuda.classifying import Classifying
from workers.engines.cuda.compiled.modules import Kernels
from workers.engines.cuda.crops import Cropper, weights_bytes
from workers.engines.cuda.encoding import as_jpegs
from workers.engines.cuda.filtering import Filtering
from workers.engines.cuda.late_states import LateStates
from workers.engines.cuda.lost import diagnosed
from workers.engines.cuda.network import GraphedNetwork
from workers.engines.cuda.nvjpeg.decoder import NvJpeg, NvJpegError, NvJpegUnfit, first_sizes, sizes
from workers.engines.cuda.self_test import Kind, run_self_test, samples
from workers.engines.cuda.slot import Marks, Outputs, Region, Slot, Tables
from workers.engines.cuda.streams import Streams, times
from workers.engines.cuda.versions import versions
from workers.filters.registry import parse_one
from workers.kernels.cubins import CubinStore
from workers.operations import Classify, FilterChain, NetworkOutput
from workers.scheduling.engine import BatchResult
from workers.start_times import StartTimes

log = logging.getLogger("darkroom.cuda")

SLOTS = 3
BYTES_PER_PIXEL = 4
SCRATCH_PER_BYTE = 4
"""Filters may keep 32 bits of every sample between two passes."""

TYPICAL_SIDE = 512
"""Pixels a side of the images of the warm-up: the decoder's own memory grows with its images."""

SLACK = 1 << 16
"""Bytes that an image may need beyond its pixels, because rows and planes are aligned."""


class CudaEngine:
    """Runs `networks` and filters on `device`; networks without weights are left out.

    Batches have at most `max_batch_size` images and `max_pixels` pixels. `cubins` holds compiled
    kernels, by default in the user's cache folder. `degraded` says what is missing on this machine.
    `times` gets the seconds of the parts of the start.
    """

    def __init__(
        self,
        networks: Sequence[GraphedNetwork],
        max_batch_size: int,
        max_pixels: int,
        device: str,
        cubins: CubinStore | None = None,
        times: StartTimes | None = None,
    ) -> None:
        torch.cuda.set_device(device)
        self._times = times or StartTimes()
        self.device = device
        self.collectors = SLOTS
        self._networks = networks
        self._max_batch_size = max_batch_size
        self._side = min(TYPICAL_SIDE, math.isqrt(max_pixels // max_batch_size))
        self._torch_device = torch.device(device)
        self._streams = Streams(self._torch_device)
        self._nvjpeg, self.degraded = _decoder()
        self._times.end("nvJPEG")
        log.info("CUDA: %s", versions())
        kernels = Kernels(cubins)
        self._times.end("kernels")
        self._classifying: dict[str, Classifying] = {}
        for network in networks:
            cropper = Cropper(kernels, network.spec.preprocessing, network.table)
            self._classifying[network.spec.name] = Classifying(network, cropper, self._streams)
        room = BYTES_PER_PIXEL * max_pixels + SLACK * max_batch_size
        scratch = Region(SCRATCH_PER_BYTE * room, self._torch_device)
        self._filtering = Filtering(kernels, self._streams, scratch)
        self._late: LateStates | None = None
        self._free: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        for _ in range(SLOTS):
            self._free.put(self._slot(room, max_batch_size))
        self._times.end("memory of slots")

    @property
    def takes_jpegs(self) -> bool:
        """Return whether this GPU has engines that decode JPEGs."""
        return self._nvjpeg is not None

    def acquire(self) -> Slot | None:
        """Wait for a free staging slot and return it; None once the engine is closed."""
        slot = self._free.get()
        if slot is None:
            # Each waiting thread passes the end on, so that one `close` wakes them all.
            self._free.put(None)
        return slot

    def launch(self, slot: Slot, jobs: Sequence[Job]) -> None:
        """Start the batch on the three streams; raises EngineLost after a sticky error."""
        torch.cuda.set_device(self._torch_device)
        slot.jobs = jobs
        try:
            if not isinstance(jobs[0].operation, Classify):
                self._filtering.launch(slot, jobs)
            elif (through := self._classifying.get(jobs[0].operation.network)) is not None:
                through.launch(slot, jobs)
            else:  # nothing runs on the device: `collect` answers with this
                slot.refusal = WeightsMissing("no weights are loaded")
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error

    def collect(self, slot: Slot) -> BatchResult:
        """Wait for the slot's last event. This is the only place that waits for the device."""
        if slot.refusal is not None:
            return BatchResult([slot.refusal] * len(slot.jobs), 0.0, 0.0, 0.0)
        try:
            slot.marks.done.synchronize()
            upload, decode, compute, download = times(slot.marks)
            # Building results is part of the download: they are copied out of pinned memory here.
            started = time.monotonic()
            values = self._values(slot)
            download += time.monotonic() - started
        except Exception as error:
            raise diagnosed(error, self._torch_device) from error
        return BatchResult(values, upload, compute, download, decode)

    def release(self, slot: Slot) -> None:
        """Give the slot back and drop its references to images."""
        slot.clear()
        self._free.put(slot)

    def warm_up(self) -> None:
        """Capture the graphs, load the kernels, and run batches of every kind in every slot.

        Raises SelfTestFailed when one of them gives an error. Nothing else may use the engine yet.
        """
        for network in self._networks:
            network.capture(self._streams.compute)
        self._times.end("graphs")
        grey, file = samples(self._side)
        slots = [slot for slot in (self._free.get() for _ in range(SLOTS)) if slot is not None]
        decoders = [slot.decoder for slot in slots if slot.decoder is not None]
        first = first_sizes(self._max_batch_size)
        try:
            for decoder, n in itertools.product(decoders, first):
                decoder.add(n, decoder.state(n))
            self._times.end("decoder states")
            kinds = self._kinds(grey, file)
            run_self_test(slots, kinds, self.launch, self.collect, Slot.clear)
            self._times.end("self-test")
        finally:
            for slot in slots:
                self.release(slot)
        rest = [n for n in sizes(self._max_batch_size) if n not in first]
        self._late = LateStates(decoders, rest, file, self._torch_device)
        self._late.start()

    def _kinds(self, grey: Image, file: Jpeg) -> list[Kind]:
        """Return every kind of batch: filtered pixels, each output of each network, files in the
        first sizes.
        """
        filtering = FilterChain((parse_one("invert", {}),))
        kinds = [Kind("filtered pixels", Job(filtering, grey), 1)]
        for name in self._classifying:
            for output in NetworkOutput:
                job = Job(Classify(network=name, output=output), grey)
                kinds.append(Kind(f"{output.value} of {name}", job, 1))
        if self.takes_jpegs:
            job, few = Job(filtering, file), first_sizes(self._max_batch_size)
            kinds += [Kind("filtered files", job, size) for size in few]
        return kinds

    def close(self) -> None:
        """Wake the threads that wait for a slot, and end what is still being prepared."""
        self._free.put(None)
        if self._late is not None:
            self._late.close()

    def _values(self, slot: Slot) -> Sequence[Result | ServiceError]:
        values: list[Result | ServiceError]
        operation = slot.jobs[0].operation
        if isinstance(operation, Classify):
            values = [*self._classifying[operation.network].results(slot, slot.jobs)]
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
        own = [network.spec.preprocessing for network in self._networks]
        preprocessings = [RESNET18.preprocessing, *own]
        weights = weights_bytes(room // BYTES_PER_PIXEL, max_batch_size, preprocessings)
        return Slot(
            first=Region(room, device),
            second=Region(room, device),
            weights=Region(weights, device),
            tables=Tables(device),
            host=torch.empty(room, dtype=torch.uint8, pin_memory=True),
            outputs={
                each.spec.name: Outputs.of(
                    max_batch_size, each.n_classes, each.spec.features, device
                )
                for each in self._networks
            },
            marks=Marks.made(),
            decoder=None if self._nvjpeg is None else self._nvjpeg.decoder(),
        )


def _decoder() -> tuple[NvJpeg | None, str | None]:
    """Return the decode engines, or None and perhaps why the service is degraded without them.

    A GPU that has no such engines is as good as it can be: front ends decode. A library that is
    missing is a fault of the installation, which costs most of the rate.
    """
    try:
        return NvJpeg(), None
    except NvJpegError as error:
        log.info("JPEGs are decoded on the CPU: %s", error)
        return None, None
    except (NvJpegUnfit, DynamicLibNotFoundError) as error:
        found = str(error).strip().splitlines()[0]
        problem = (
            f"JPEGs are decoded on the CPU, because nvJPEG cannot be used ({found}); "
            "install what requirements-gpu.lock names"
        )
        log.warning("%s", problem)
        return None, problem
