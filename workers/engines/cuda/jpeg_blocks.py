"""Find the JPEGs of a batch whose data do not hold exactly the blocks of their images.

The decode engines notice neither missing data nor codes that no table has. Where they stop, the
image shows pixels of an image that the same engine decoded before, which may be another client's:
these pixels lie in memory of the driver, which no program can fill. So a kernel counts the blocks
of each file while the engines decode it (`kernels/jpeg_blocks.cu`), and the CPU decodes files whose
count is wrong. It refuses damaged files in its own words, as on a machine without a GPU.
"""

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from models.domain.image import Jpeg, Pixels

if TYPE_CHECKING:
    from workers.engines.cuda.slot import Launcher

log = logging.getLogger("darkroom.cuda")

THREADS = 512
"""Of the block that decodes a file: `JPEG_THREADS` in kernels/jpeg_blocks.cu."""

FILE = np.dtype([(name, np.uint64) for name in ("address", "size", "offset", "whole")])
"""The struct `JpegFile` of kernels/jpeg_blocks.cu."""

VECTOR = 16
"""Bytes that the kernel copies at a time; files begin at multiples of it."""

PER_PIXEL, SPARE = 2, 1 << 15
"""Bytes that a file may have for each of its pixels, and beyond these, as far as memory of the slot
is kept for them. Of 181 photos the largest has 1.8 for each pixel."""


class ReadableMemory:
    """Memory of the host that the device reads where it is, because the driver keeps its pages.

    Any thread may call the methods: a change of the dictionary is a single step, and so is a copy.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._ends: dict[int, int] = {}

    def add(self, memory: Pixels, n_bytes: int) -> None:
        """Register the first bytes of `memory`, uint8 (n,), until nothing uses its array."""
        from cupy.cuda import runtime  # without a GPU there is no CuPy

        start = memory.ctypes.data
        try:
            with _current(self._device):
                runtime.hostRegister(start, n_bytes, 0)
        except runtime.CUDARuntimeError as error:
            log.warning("files of a front end are copied before the device reads them: %s", error)
            return
        weakref.finalize(memory, self._remove, start).atexit = False
        self._ends[start] = start + n_bytes

    def holds(self, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which of these rows of FILE lie in this memory."""
        first, end = _bounds(tuple(self._ends.copy().items()))
        inside = (rows["address"] >= first) & (rows["address"] + rows["size"] <= end)
        return np.asarray(inside.any(axis=0))

    def _remove(self, start: int) -> None:
        from cupy.cuda import runtime

        del self._ends[start]
        with _current(self._device):
            runtime.hostUnregister(start)


@lru_cache(maxsize=8)
def _bounds(ends: tuple[tuple[int, int], ...]) -> NDArray[np.uint64]:
    """Return the first addresses and the ends of pieces of memory, uint64 (2, n, 1)."""
    return np.array(ends, np.uint64).reshape(-1, 2).T[..., None]


class JpegBlocks:
    """The check of the JPEGs of at most `batch` images with `pixels` pixels, for one slot.

    On a GPU the check has memory and a stream of its own, so that neither decoding nor computing
    waits for it. The kernel copies files from `readable` memory by itself; further files are copied
    to the device before. Its answers go to pinned memory of the host.
    """

    def __init__(
        self, batch: int, pixels: int, device: torch.device, readable: ReadableMemory
    ) -> None:
        size = PER_PIXEL * pixels + batch * (SPARE + VECTOR) + VECTOR
        on_gpu = device.type == "cuda"
        self._readable = readable
        self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        rows = torch.zeros(batch * FILE.itemsize, dtype=torch.uint8, pin_memory=on_gpu)
        self._rows = rows.numpy().view(FILE)
        self._addresses = rows.data_ptr(), self._memory.data_ptr()
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._ended = torch.cuda.Event(blocking=True) if on_gpu else None
        self._indexes: list[int] = []

    def check(
        self, kernels: "Launcher", files: Mapping[int, Jpeg], found: NDArray[np.uint64]
    ) -> None:
        """Start to count the blocks of files, given by their index in the batch, with the address
        and the bytes of each, uint64 (n, 2); `fits` holds for each.
        """
        self._indexes = [*files]
        rows, sizes = self._rows[: len(files)], found[:, 1]
        rows["address"], rows["size"], rows["whole"] = found[:, 0], sizes, 0
        rooms = (sizes + np.uint64(VECTOR - 1)) // np.uint64(VECTOR) * np.uint64(VECTOR)
        rows["offset"] = rooms.cumsum() - rooms
        if not (readable := self._readable.holds(rows)).all():
            with torch.cuda.stream(self._stream) if self._stream else nullcontext():
                self._copy(rows, [*files.values()], np.flatnonzero(~readable))
        kernels.launch("count_jpeg_blocks", len(files), THREADS, self._addresses, self._stream)
        if self._ended is not None:
            self._ended.record(self._stream)

    def _copy(
        self, rows: NDArray[np.void], files: Sequence[Jpeg], wanted: NDArray[np.intp]
    ) -> None:
        """Copy the wanted files to the device, on the current stream."""
        for row in wanted:
            data = files[row].data
            copy = self._memory[int(rows["offset"][row]) :][: len(data)]
            # The driver refuses a copy from memory of which it keeps a part of the pages, and a
            # file may lie on the end of readable memory.
            copy.copy_(torch.from_numpy(data.copy()))
            rows["address"][row] = copy.data_ptr()

    def damaged(self) -> list[int]:
        """Wait for the check; return the indexes of files that the CPU has to judge."""
        if self._indexes and self._ended is not None:
            self._ended.synchronize()
        whole = self._rows["whole"][: len(self._indexes)]
        return [self._indexes[row] for row in np.flatnonzero(whole == 0)]

    def clear(self) -> None:
        """Forget the JPEGs of the last batch, with which the device is done."""
        self._indexes = []


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current device of a thread that may have another, for a block."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def fits(jpeg: Jpeg) -> bool:
    """Return whether the slot keeps memory for this file."""
    return len(jpeg.data) <= PER_PIXEL * jpeg.n_pixels + SPARE
