"""Find the JPEGs of a batch whose data do not hold exactly the blocks of their images.

The decode engines notice neither missing data nor codes that no table has. Where they stop, the
image shows pixels of an image that the same engine decoded before, which may be another client's:
these pixels lie in memory of the driver, which no program can fill. So a kernel counts the blocks
of each file while the engines decode it (`kernels/jpeg_blocks.cu`), and the CPU decodes files whose
count is wrong. It refuses damaged files in its own words, as on a machine without a GPU.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

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


class Scan(NamedTuple):
    """Where the data of a file's scan begin, its four tables, and the selectors of its blocks."""

    start: int
    tables: bytes
    selectors: int


class JpegBlocks:
    """The check of the JPEGs of at most `batch` images with `pixels` pixels, for one slot.

    The check has memory and a stream of its own, so that neither decoding nor computing waits for
    it. The kernel writes its answers to pinned memory of the host.
    """

    def __init__(self, batch: int, pixels: int, device: torch.device) -> None:
        pinned, size = device.type == "cuda", PER_PIXEL * pixels + batch * (SPARE + 4 * TABLE + 64)
        self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self._whole = torch.zeros(batch, dtype=torch.int32, pin_memory=pinned)
        self._stream = torch.cuda.Stream(device) if pinned else None
        self._indexes: list[int] = []

    def clear(self) -> None:
        """Forget the JPEGs of the last batch."""
        self._indexes = []

    def check(self, kernels: "Launcher", files: Mapping[int, tuple[Jpeg, Scan]]) -> None:
        """Start to copy the data of each file to the device and to count its blocks.

        `files` are the JPEGs by their index in the batch, each with what `scan_of` returned.
        """
        self._indexes = [*files]
        rows = np.zeros(len(files), JPEG_DATA)
        host, start, end = self._host.numpy(), self._memory.data_ptr(), rows.nbytes
        placed: dict[bytes, int] = {}
        for row, (image, scan) in enumerate(files.values()):
            if scan.tables not in placed:
                host[end : end + 4 * TABLE] = np.frombuffer(scan.tables, np.uint8)
                placed[scan.tables] = start + end
                end += 4 * TABLE
            content = image.data[scan.start : -2]
            host[end : end + len(content)] = content
            whole = self._whole.data_ptr() + row * self._whole.element_size()
            addresses = (start + end, placed[scan.tables], whole)
            rows[row] = (*addresses, len(content), *_blocks(image), scan.selectors)
            end += len(content)
        host[: rows.nbytes] = rows.view(np.uint8)
        self._whole[: len(files)] = 0
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            self._memory[:end].copy_(self._host[:end], non_blocking=True)
            kernels.launch("count_jpeg_blocks", len(files), THREADS, (start,))

    def end_before(self, stream: torch.cuda.Stream) -> None:
        """Let what comes next on `stream` wait for the check of the batch."""
        if self._stream and self._indexes:
            stream.wait_stream(self._stream)

    def damaged(self) -> list[int]:
        """Return the indexes of files that the CPU has to judge; the batch must be done."""
        whole = self._whole[: len(self._indexes)].numpy()
        return [self._indexes[row] for row in np.flatnonzero(whole == 0)]


def scan_of(jpeg: Jpeg) -> Scan | None:
    """Return what the kernel needs to know of a JPEG; None if it is a file for the CPU.

    The engines take no file without a scan, and there is no memory for data that are much longer
    than the image has pixels.
    """
    try:
        scan = _scan(jpeg)
    except (IndexError, ValueError):
        return None
    fits = len(jpeg.data) - scan.start <= PER_PIXEL * jpeg.n_pixels + SPARE
    return scan if fits else None


def _blocks(jpeg: Jpeg) -> tuple[int, int]:
    """Return the number of blocks of the image and of a minimum coded unit."""
    turned = jpeg.orientation >= 5
    width, height = (jpeg.height, jpeg.width) if turned else (jpeg.width, jpeg.height)
    wide, high, blocks = UNITS[jpeg.subsampling]
    return -(-width // wide) * -(-height // high) * sum(blocks), sum(blocks)


def _scan(jpeg: Jpeg) -> Scan:
    """Read the segments of a file that `models.codec.jpeg.inspect` has accepted."""
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
    return Scan(end, b"".join(four), selectors)


@lru_cache(maxsize=64)
def _tables(body: bytes) -> Mapping[int, bytes]:
    """Return each table of a DHT segment by its class and number, `TABLE` bytes long."""
    tables, at = {}, 0
    while at < len(body):
        end = at + 17 + sum(body[at + 1 : at + 17])
        tables[body[at]] = body[at + 1 : end].ljust(TABLE, b"\0")
        at = end
    return tables
