"""Staging slots of the GPU, the streams through which they pass, and the start of kernels.

A slot is all memory and events that a batch needs, allocated once. The thread that holds the slot
is the only user of its memory, on the host and on the device. Every batch passes the streams for
upload and compute, and filtered images the stream for download. Events order the streams; the host
waits in a single place, for `Marks.done`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.domain.errors import ServiceError
from models.domain.image import Pixels
from models.domain.job import Job
from workers.engines.cuda.jpeg_blocks import JpegBlocks
from workers.engines.cuda.nvjpeg import Decoder
from workers.operations import DeviceJpeg


class Launcher(Protocol):
    """Starts kernels of `workers.kernels` by name."""

    def launch(
        self, name: str, blocks: int, threads: int, arguments: Sequence[Any], stream: Any = None
    ) -> None:
        """Start a kernel on a stream, by default torch's current stream.

        Addresses are ints, further integers np.int32.
        """


ALIGNMENT = 256
TABLE_BYTES = 4 << 20
"""Bytes for item tables, and for the tables and weights of filters."""


class SlotFull(Exception):
    """The batch needs more memory than a slot has; half of it may fit."""


class Region:
    """Device memory that is handed out piece by piece and taken back at once."""

    def __init__(self, n_bytes: int, device: torch.device) -> None:
        self.memory = torch.empty(n_bytes, dtype=torch.uint8, device=device)
        self.used = 0
        self._size, self._start = n_bytes, self.memory.data_ptr()

    def take(self, n_bytes: int) -> int:
        """Return the offset of a new piece of `n_bytes`; raises SlotFull."""
        offset = self.used
        self.used += -(-n_bytes // ALIGNMENT) * ALIGNMENT
        if self.used > self._size:
            raise SlotFull(f"a batch needs more than the {self._size:,} bytes of a slot")
        return offset

    def take_all(self, n_bytes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the device addresses of new pieces of these sizes, in their shape; raises
        SlotFull.

        One call for the images of a batch is ten times cheaper than a call for each.
        """
        aligned = -(-n_bytes.ravel() // ALIGNMENT) * ALIGNMENT
        ends = np.cumsum(aligned)
        start = self.address(self.take(int(ends[-1])))
        return (start + ends - aligned).astype(np.uint64).reshape(n_bytes.shape)

    def address(self, offset: int) -> int:
        """Return the device address of the piece at `offset`."""
        return self._start + offset

    def view(self, address: int, n_bytes: int) -> Tensor:
        """Return the bytes from a device address on, uint8 (n_bytes,)."""
        offset = address - self._start
        return self.memory[offset : offset + n_bytes]


class Tables:
    """Small arrays that are written on the host and uploaded in a single copy."""

    def __init__(self, device: torch.device) -> None:
        self._region = Region(TABLE_BYTES, device)
        pinned = device.type == "cuda"
        self._host = torch.empty(TABLE_BYTES, dtype=torch.uint8, pin_memory=pinned)
        self._bytes: Pixels = self._host.numpy()

    def clear(self) -> None:
        """Remove all content."""
        self._region.used = 0

    def add(self, content: "NDArray[np.generic] | bytes") -> int:
        """Return the device address that the content will have once uploaded; raises SlotFull."""
        raw = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
        raw = raw.reshape(-1).view(np.uint8)
        offset = self._region.take(len(raw))
        self._bytes[offset : offset + len(raw)] = raw
        return self._region.address(offset)

    def upload(self) -> None:
        """Copy the content to the device, on the current stream."""
        used = self._region.used
        self._region.memory[:used].copy_(self._host[:used], non_blocking=True)


_timed = partial(torch.cuda.Event, enable_timing=True)


@dataclass(slots=True, eq=False)
class Marks:
    """The events that mark the stages of a batch on the device, and measure their times.

    The host sleeps while it waits for `done`.
    """

    begun: torch.cuda.Event = field(default_factory=_timed)
    copied: torch.cuda.Event = field(default_factory=_timed)
    uploaded: torch.cuda.Event = field(default_factory=_timed)
    computing: torch.cuda.Event = field(default_factory=_timed)
    computed: torch.cuda.Event = field(default_factory=_timed)
    done: torch.cuda.Event = field(default_factory=partial(_timed, blocking=True))


class Outputs:
    """Memory of the host for the outputs of a network for a batch, float32, pinned for a GPU.

    Scores are (batch, 3, classes), vectors (batch, features).
    """

    def __init__(self, batch: int, n_classes: int, features: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self.scores = torch.zeros((batch, 3, n_classes), pin_memory=pinned)
        self.vectors = torch.zeros((batch, features), pin_memory=pinned)


@dataclass(slots=True, eq=False)
class GpuSlot:
    """All memory of a batch.

    `first` and `second` hold images and are source and target by turns; `host` is pinned. `outputs`
    has the outputs of each network, by its name.
    """

    first: Region
    second: Region
    weights: Region
    tables: Tables
    host: Tensor
    outputs: Mapping[str, Outputs]
    marks: Marks
    jpeg_blocks: JpegBlocks
    decoder: Decoder | None
    uploads: torch.cuda.Stream | None = None
    """The stream of its uploads, which is torch's current stream then; None is the default one."""
    jobs: Sequence[Job] = ()
    failed: dict[int, ServiceError] = field(default_factory=dict)
    refusal: ServiceError | None = None
    """The answer of every job of the batch where the device was given nothing."""
    places: list[tuple[int, tuple[int, int, int]]] = field(default_factory=list)
    """The offset in `host` and in `result`, and the shape, of each result of a filter."""
    jpeg: DeviceJpeg | None = None
    """The JPEGs as which the results of filters are encoded, if they are."""
    files: dict[int, int] = field(default_factory=dict)
    """The offset in `host` of the JPEG of a result, by its index."""
    result: Region | None = None

    def clear(self) -> None:
        """Drop the batch, with which the device is done, and take all memory back."""
        if self.decoder is not None:
            self.decoder.free()
        self.jobs, self.failed, self.places, self.result = (), {}, [], None
        self.jpeg, self.files = None, {}
        self.refusal = None
        self.first.used = self.second.used = self.weights.used = 0
        self.tables.clear()
        self.jpeg_blocks.clear()


class Streams:
    """The streams of a device for upload (decoding too), compute and download."""

    def __init__(self, device: torch.device) -> None:
        self.upload, self.compute, self.download = (torch.cuda.Stream(device) for _ in range(3))
        self._default = torch.cuda.default_stream(device)

    @contextmanager
    def uploading(self, slot: GpuSlot) -> Iterator[None]:
        """Run the block on the upload stream.

        The slot's last batch is done, so nothing reads the memory that is overwritten now. The
        decode engines ignore the order of the stream they are given: this is why a slot, and not a
        stream, must own the memory that they write to.
        """
        with self._on(self.upload, "upload"):
            slot.marks.begun.record(self.upload)
            yield
            slot.marks.uploaded.record(self.upload)
            if slot.decoder is not None:
                slot.decoder.free(slot.marks.uploaded)

    @contextmanager
    def computing(self, slot: GpuSlot) -> Iterator[None]:
        """Run the block on the compute stream, after the slot's upload."""
        with self._on(self.compute, "compute"):
            self.compute.wait_event(slot.marks.uploaded)
            slot.marks.computing.record(self.compute)
            yield
            slot.marks.computed.record(self.compute)

    @contextmanager
    def downloading(self, slot: GpuSlot, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
        """Run the block on the download stream, or on the given one, after the computation; it ends
        the batch.
        """
        stream = stream or self.download
        with self._on(stream, "download"):
            if stream is not self.compute:
                stream.wait_event(slot.marks.computed)
            yield
            slot.marks.done.record(stream)

    @contextmanager
    def _on(self, stream: torch.cuda.Stream, name: str) -> Iterator[None]:
        """Make a stream the current stream of this thread for the block, which traces call `name`.

        `torch.cuda.stream` does the same for streams and devices of all kinds, and `Event.record()`
        without a stream looks for the current stream: half of all calls of functions for a batch.
        Here the device is known, and each thread is on the default stream before.
        """
        torch.cuda.set_stream(stream)
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()
            torch.cuda.set_stream(self._default)


def times(marks: Marks) -> tuple[float, float, float, float]:
    """Return the seconds of upload, decode, compute and download of a batch that is done."""
    ends = (
        (marks.begun, marks.copied),
        (marks.copied, marks.uploaded),
        (marks.computing, marks.computed),
        (marks.computed, marks.done),
    )
    upload, decode, compute, download = (a.elapsed_time(b) / 1e3 for a, b in ends)
    return upload, decode, compute, download
