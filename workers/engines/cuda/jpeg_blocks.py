"""Find the JPEGs of a batch whose data do not hold exactly the blocks of their images.

The decode engines notice neither missing data nor codes that no table has. Where they stop, the
image shows pixels of an image that the same engine decoded before, which may be another client's:
these pixels lie in memory of the driver, which no program can fill. So a kernel counts the blocks
of each file while the engines decode it (`kernels/jpeg_blocks.cu`), and the CPU decodes files whose
count is wrong. It refuses damaged files in its own words, as on a machine without a GPU.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from models.domain.image import Jpeg
from workers.engines.builder import on_one_thread

if TYPE_CHECKING:
    from workers.engines.cuda.slot import Launcher

THREADS = 512
"""Of the block that decodes a file: `JPEG_THREADS` in kernels/jpeg_blocks.cu."""

BOUND = np.dtype(np.uint64)

WORD = 4
"""Bytes that the kernel may read behind the last file."""

PER_PIXEL, SPARE = 2, 1 << 15
"""Bytes that a file may have for each of its pixels, and beyond these, as far as memory of the slot
is kept for them. Of 181 photos the largest has 1.8 for each pixel."""


class JpegBlocks:
    """The check of the JPEGs of at most `batch` images with `pixels` pixels, for one slot.

    On a GPU the check has memory and a stream of its own, so that neither decoding nor computing
    waits for it. The kernel writes its answers to pinned memory of the host.
    """

    def __init__(self, batch: int, pixels: int, device: torch.device) -> None:
        size = PER_PIXEL * pixels + batch * (SPARE + BOUND.itemsize) + WORD
        on_gpu = device.type == "cuda"
        self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu)
        self._whole = torch.zeros(batch, dtype=torch.int32, pin_memory=on_gpu)
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._ended = torch.cuda.Event(blocking=True) if on_gpu else None
        self._indexes: list[int] = []

    def check(self, kernels: "Launcher", files: Mapping[int, Jpeg]) -> None:
        """Start to count the blocks of files, given by their index in the batch; `fits` holds for
        each.
        """
        self._indexes = [*files]
        self._whole[: len(files)] = 0
        bounds = np.cumsum([len(each.data) for each in files.values()], dtype=BOUND)
        first, end = bounds.nbytes, bounds.nbytes + int(bounds[-1])
        self._host[:first] = torch.from_numpy(bounds.view(np.uint8))
        # One call for all files gives the interpreter up, and waits for it, once for a batch. More
        # threads would wait for each other longer than a single thread copies.
        with on_one_thread():
            torch.cat([_tensor(each) for each in files.values()], out=self._host[first:end])
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            self._memory[:end].copy_(self._host[:end], non_blocking=True)
            start = self._memory.data_ptr()
            addresses = (start + first, start, self._whole.data_ptr())
            kernels.launch("count_jpeg_blocks", len(files), THREADS, addresses)
            if self._ended is not None:
                self._ended.record()

    def damaged(self) -> list[int]:
        """Wait for the check; return the indexes of files that the CPU has to judge."""
        if self._indexes and self._ended is not None:
            self._ended.synchronize()
        whole = self._whole[: len(self._indexes)].numpy()
        return [self._indexes[row] for row in np.flatnonzero(whole == 0)]

    def clear(self) -> None:
        """Forget the JPEGs of the last batch, with which the device is done."""
        self._indexes = []


def fits(jpeg: Jpeg) -> bool:
    """Return whether the slot keeps memory for this file."""
    return len(jpeg.data) <= PER_PIXEL * jpeg.n_pixels + SPARE


def _tensor(jpeg: Jpeg) -> torch.Tensor:
    """Return the file as a tensor, uint8; torch takes no memory that is read-only."""
    data = jpeg.data
    return torch.from_numpy(data if data.flags.writeable else data.copy())
