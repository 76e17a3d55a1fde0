"""Find the JPEGs of a batch whose data do not hold exactly the blocks of their images.

The decode engines notice neither missing data nor codes that no table has. Where they stop, the
image shows pixels of an image that the same engine decoded before, which may be another client's:
these pixels lie in memory of the driver, which no program can fill. So a kernel counts the blocks
of each file while the engines decode it (`kernels/jpeg_blocks.cu`), and the CPU decodes files whose
count is wrong. It refuses damaged files in its own words, as on a machine without a GPU.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from models.codec.jpeg import UNITS
from models.domain.image import Jpeg

if TYPE_CHECKING:
    from workers.engines.cuda.slot import GpuSlot, Launcher

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

SPARE = 1 << 15
"""Bytes that the data of a file may have beyond one for each of its pixels, as far as memory of the
slot is kept for them. Few photos have more than half of that."""


class JpegBlocks:
    """The check of the JPEGs of at most `batch` images, for a slot.

    The kernel writes its answers to pinned memory of the host.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._whole = torch.zeros(batch, dtype=torch.int32, pin_memory=pinned)
        self._indexes: list[int] = []

    def clear(self) -> None:
        """Forget the JPEGs of the last batch."""
        self._indexes = []

    def check(self, kernels: "Launcher", slot: "GpuSlot", images: Mapping[int, Jpeg]) -> None:
        """Copy the data of each file to the device and start the kernel, on the current stream.

        `images` are the files by their index in the batch; `fits` holds for each.
        """
        self._indexes = [*images]
        rows = np.zeros(len(images), JPEG_DATA)
        offset = slot.first.take(
            rows.nbytes + 4 * TABLE * len(images) + sum(len(each.data) for each in images.values())
        )
        start, end = offset, offset + rows.nbytes
        host = slot.host.numpy()
        placed: dict[bytes, int] = {}
        for row, image in enumerate(images.values()):
            first, tables, selectors = _scan(image)
            if tables not in placed:
                host[end : end + len(tables)] = np.frombuffer(tables, np.uint8)
                placed[tables] = slot.first.address(end)
                end += len(tables)
            content = image.data[first:-2]
            host[end : end + len(content)] = content
            whole = self._whole.data_ptr() + row * self._whole.element_size()
            addresses = (slot.first.address(end), placed[tables], whole)
            rows[row] = (*addresses, len(content), *_blocks(image), selectors)
            end += len(content)
        host[start : start + rows.nbytes] = rows.view(np.uint8)
        self._whole[: len(images)] = 0
        slot.first.memory[start:end].copy_(slot.host[start:end], non_blocking=True)
        arguments = (slot.first.address(start),)
        kernels.launch("count_jpeg_blocks", len(images), THREADS, arguments)

    def damaged(self) -> list[int]:
        """Return the indexes of files that the CPU has to judge; the batch must be done."""
        whole = self._whole[: len(self._indexes)].numpy()
        return [self._indexes[row] for row in np.flatnonzero(whole == 0)]


def fits(jpeg: Jpeg) -> bool:
    """Return whether the slot keeps memory for the data of this file."""
    return len(jpeg.data) <= jpeg.height * jpeg.width + SPARE


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
