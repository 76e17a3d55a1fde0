"""Notice the JPEGs of a batch of which the decode engines left pixels unwritten.

The engines report neither missing data nor codes that no table has: they stop, and the memory of
the image keeps its earlier content, which may be an image of another client. The engines write the
blocks of a baseline JPEG in the order of the file, so a JPEG is whole if the last block of its last
plane is written. Before a batch is decoded, the memory of its planes is filled with `POISON`. The
engine decodes on the CPU the JPEGs whose last block holds nothing but `POISON` afterwards: libjpeg
then tells whether the file is damaged, or has a block of this very value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

POISON = 11
"""The level of unwritten samples. As red chroma of a block the level is outside of sRGB's usual
colours, and as luma it is nearly black: few last blocks of good files hold nothing else."""

SIDE = 8
"""Columns and rows of a block."""

GREY, S422, S420 = 1, 6, 7
"""The kinds of sources that the last block depends on, of the enum `Kind` in headers/source.cuh."""


class LastBlocks:
    """The last block of each JPEG of a batch of at most `batch` images, copied to the host.

    The memory on the device and on the host is allocated here, once for each slot.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        pinned, shape = device.type == "cuda", (batch, SIDE * SIDE)
        self._places = torch.zeros(shape, dtype=torch.int64, device=device)
        self._samples = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._places_host = torch.zeros(shape, dtype=torch.int64, pin_memory=pinned)
        self._samples_host = torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)
        self._stream = torch.cuda.Stream(device, priority=-1) if pinned else None
        self._indexes: list[int] = []

    def clear(self) -> None:
        """Forget the JPEGs of the last batch."""
        self._indexes = []

    def poison(self, memory: Tensor) -> None:
        """Fill the memory of all planes with `POISON`, and wait for the end of the filling.

        The engines ignore the order of streams, so the host waits. The filling has a stream of its
        own: the upload stream may still be decoding an earlier batch.
        """
        if self._stream is None:
            memory.fill_(POISON)
            return
        with torch.cuda.stream(self._stream):
            memory.fill_(POISON)
        self._stream.synchronize()

    def copy(self, memory: Tensor, rows: NDArray[Any], indexes: Sequence[int]) -> None:
        """Copy the last block of each JPEG to the host, on the current stream.

        `rows` are the SOURCE rows of the whole batch, whose planes lie in `memory`, and `indexes`
        are the places of JPEGs in the batch.
        """
        n = len(indexes)
        self._indexes = [*indexes]
        self._places_host[:n].numpy()[:] = _places(rows[self._indexes]) - memory.data_ptr()
        self._places[:n].copy_(self._places_host[:n], non_blocking=True)
        samples = self._samples[:n].view(-1)
        torch.index_select(memory, 0, self._places[:n].view(-1), out=samples)
        self._samples_host[:n].copy_(self._samples[:n], non_blocking=True)

    def unwritten(self) -> list[int]:
        """Return the indexes of JPEGs whose last block is unwritten; the batch must be done."""
        samples = self._samples_host[: len(self._indexes)].numpy()
        return [self._indexes[n] for n in np.flatnonzero((samples == POISON).all(axis=1))]


def _places(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the device addresses of the samples of each last block: int64 (n, 64).

    A block that the image cuts has the addresses of its last column and of its last row again.
    """
    kinds, last = rows["kind"], np.where(rows["kind"] == GREY, 0, 2)
    every = np.arange(len(rows))
    columns = _last(rows["width"], halved=(kinds == S422) | (kinds == S420))
    lines = _last(rows["height"], halved=kinds == S420)
    starts = rows["plane"][every, last].astype(np.int64)[:, None, None]
    pitches = rows["pitch"][every, last].astype(np.int64)[:, None, None]
    places = starts + lines[:, :, None] * pitches + columns[:, None, :]
    return places.reshape(len(rows), SIDE * SIDE)


def _last(sizes: NDArray[np.int32], halved: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the last `SIDE` coordinates, from a multiple of `SIDE` on: int64 (n, SIDE)."""
    most = ((sizes.astype(np.int64) + halved) >> halved) - 1
    first = most // SIDE * SIDE
    found: NDArray[np.int64] = np.minimum(first[:, None] + np.arange(SIDE), most[:, None])
    return found
