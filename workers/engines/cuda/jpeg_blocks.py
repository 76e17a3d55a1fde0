"""Find the JPEGs of a batch whose data do not hold exactly the blocks of their images.

The decode engines notice neither missing data nor codes that no table has. Where they stop, the
image shows pixels of an image that the same engine decoded before, which may be another client's:
these pixels lie in memory of the driver, which no program can fill. So a kernel counts the blocks
of each file while the engines decode it (`kernels/jpeg_blocks.cu`), and the CPU decodes files whose
count is wrong. It refuses damaged files in its own words, as on a machine without a GPU.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from models.codec.jpeg import UNITS
from models.domain.image import Jpeg

if TYPE_CHECKING:
    from workers.engines.cuda.slot import Launcher

JPEG_DATA = np.dtype(
    [
        ("data", np.uint64),
        ("tables", np.uint64),
        ("whole", np.uint64),
        ("size", np.int32),
        ("blocks", np.int32),
        ("per_unit", np.int32),
        ("selectors", np.uint32),
    ]
)
"""The struct `JpegData` of kernels/jpeg_blocks.cu."""

THREADS = 256
TABLE = 16 + 256
_DHT, _SOS = 0xC4, 0xDA
_ABSENT = bytes(TABLE)

PER_PIXEL, SPARE = 2, 1 << 15
"""Bytes that the data of a file may have for each of its pixels, and beyond these, as far as memory
of the slot is kept for them. Of 181 photos the largest has 1.8 for each pixel."""


class JpegBlocks:
    """The check of the JPEGs of at most `batch` images with `pixels` pixels, for one slot.

    On a GPU the check has a thread, memory and a stream of its own: the thread that starts batches
    has no time to copy files, and neither decoding nor computing waits for the check. The kernel
    writes its answers to pinned memory of the host.
    """

    def __init__(self, batch: int, pixels: int, device: torch.device) -> None:
        size = PER_PIXEL * pixels + batch * (SPARE + 4 * TABLE + 64)
        on_gpu = device.type == "cuda"
        self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu)
        self._whole = torch.zeros(batch, dtype=torch.int32, pin_memory=on_gpu)
        self._thread = ThreadPoolExecutor(1, "jpeg-blocks") if on_gpu else None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._ended = torch.cuda.Event(blocking=True) if on_gpu else None
        self._started: Future[None] | None = None
        self._indexes: list[int] = []

    def check(self, kernels: "Launcher", files: Mapping[int, Jpeg]) -> None:
        """Start to count the blocks of files, given by their index in the batch; `fits` holds for
        each.
        """
        self._indexes = [*files]
        self._whole[: len(files)] = 0
        if self._thread is None:
            self._count(kernels, [*files.values()])
        else:
            self._started = self._thread.submit(self._on_stream, kernels, [*files.values()])

    def damaged(self) -> list[int]:
        """Wait for the check; return the indexes of files that the CPU has to judge."""
        if self._started is not None and self._ended is not None:
            self._started.result()
            self._ended.synchronize()
        whole = self._whole[: len(self._indexes)].numpy()
        return [self._indexes[row] for row in np.flatnonzero(whole == 0)]

    def clear(self) -> None:
        """Forget the JPEGs of the last batch, whose memory may be used again."""
        if self._started is not None:
            with suppress(Exception):  # the caller of `damaged` has got the error
                self.damaged()
        self._started, self._indexes = None, []

    def _on_stream(self, kernels: "Launcher", files: Sequence[Jpeg]) -> None:
        assert self._stream is not None
        assert self._ended is not None
        torch.cuda.set_device(self._memory.device)
        with torch.cuda.stream(self._stream):
            self._count(kernels, files)
            self._ended.record(self._stream)

    def _count(self, kernels: "Launcher", files: Sequence[Jpeg]) -> None:
        """Copy the data of each file to the device, and launch the kernel on the current stream."""
        rows = np.zeros(len(files), JPEG_DATA)
        host, start, end = self._host.numpy(), self._memory.data_ptr(), rows.nbytes
        placed: dict[bytes, int] = {}
        n = 0
        for index, image in enumerate(files):
            try:
                first, tables, selectors = _scan(image)
            except (IndexError, ValueError):  # the engines refuse it as well
                continue
            if tables not in placed:
                host[end : end + 4 * TABLE] = np.frombuffer(tables, np.uint8)
                placed[tables] = start + end
                end += 4 * TABLE
            content = image.data[first:-2]
            host[end : end + len(content)] = content
            whole = self._whole.data_ptr() + index * self._whole.element_size()
            addresses = (start + end, placed[tables], whole)
            rows[n] = (*addresses, len(content), *_blocks(image), selectors)
            end += len(content)
            n += 1
        host[: rows.nbytes] = rows.view(np.uint8)
        self._memory[:end].copy_(self._host[:end], non_blocking=True)
        kernels.launch("count_jpeg_blocks", n, THREADS, (start,))


def fits(jpeg: Jpeg) -> bool:
    """Return whether the slot keeps memory for the data of this file."""
    return len(jpeg.data) <= PER_PIXEL * jpeg.n_pixels + SPARE


def _blocks(jpeg: Jpeg) -> tuple[int, int]:
    """Return the number of blocks of the image and of a minimum coded unit."""
    turned = jpeg.orientation >= 5
    width, height = (jpeg.height, jpeg.width) if turned else (jpeg.width, jpeg.height)
    wide, high, blocks = UNITS[jpeg.subsampling]
    return -(-width // wide) * -(-height // high) * sum(blocks), sum(blocks)


def _scan(jpeg: Jpeg) -> tuple[int, bytes, int]:
    """Return where the data of the scan begin, its four tables, and the selectors of its blocks.

    `models.codec.jpeg.inspect` has accepted the file, so no segment is out of order.
    """
    stream, at = jpeg.data.data, 2
    tables: dict[int, bytes] = {}
    while (marker := stream[at + 1]) != _SOS:
        end = at + 2 + (stream[at + 2] << 8 | stream[at + 3])
        if marker == _DHT:
            tables |= _tables(bytes(stream[at + 4 : end]))
        at = end
    end = at + 2 + (stream[at + 2] << 8 | stream[at + 3])
    selectors, shift = 0, 0
    _, _, blocks = UNITS[jpeg.subsampling]
    for selector, n in zip(stream[at + 6 : end - 3 : 2], blocks, strict=True):
        for _ in range(n):
            selectors |= (selector >> 4 | (selector & 15) << 1) << shift
            shift += 2
    four = [tables.get(name, _ABSENT) for name in (0x00, 0x01, 0x10, 0x11)]
    return end, b"".join(four), selectors


@lru_cache(maxsize=64)
def _tables(body: bytes) -> Mapping[int, bytes]:
    """Return each table of a DHT segment by its class and number, `TABLE` bytes long."""
    tables, at = {}, 0
    while at < len(body):
        end = at + 17 + sum(body[at + 1 : at + 17])
        tables[body[at]] = body[at + 1 : end].ljust(TABLE, b"\0")
        at = end
    return tables
