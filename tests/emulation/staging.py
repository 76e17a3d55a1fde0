"""The GPU engine without a GPU: a staging slot in CPU memory, and kernels that run there."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from PIL import Image as PillowImage

from models.domain.image import Jpeg, Subsampling
from tests.emulation.emulator import emulator
from tests.pictures import encoded
from workers.engines.cuda.jpeg_blocks import JpegBlocks, ReadableMemory
from workers.engines.cuda.nvjpeg import Decoder, NvJpegError
from workers.engines.cuda.slot import GpuSlot, Marks, Region, Tables

SAMPLED = {Subsampling.S444: 0, Subsampling.S422: 1, Subsampling.S420: 2}
"""The number with which Pillow writes a subsampling."""

CPU = torch.device("cpu")
POISON = 0xCD


class EmulatedKernels:
    """Launcher like `engines.cuda.compiled.modules.Kernels` that runs each kernel immediately.

    `launched` lists the names of the kernels.
    """

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(
        self, name: str, blocks: int, threads: int, arguments: Sequence[Any], _stream: None = None
    ) -> None:
        self.launched.append(name)
        if blocks:
            emulator().call(name, blocks, threads, *(int(each) for each in arguments))


class NoStreams:
    """Streams for operations that all run immediately, in the order of the calls."""

    compute = None

    @contextmanager
    def uploading(self, _slot: GpuSlot, _stream: None = None) -> Iterator[None]:
        yield

    computing = downloading = uploading


class NoEvent:
    """Event that is always complete."""

    def record(self, _stream: None) -> None:
        pass


class Planes:
    """JPEG decoder that writes known planes, or fails with the error of the real one."""

    def __init__(self, planes: Sequence[np.ndarray[Any, Any]], *, fails: bool = False) -> None:
        self._planes = planes
        self._fails = fails

    def decode(self, _data: Any, _lengths: Any, destinations: Any, _stream: int) -> None:
        if self._fails:
            raise NvJpegError("nvjpegDecodeBatched", 4)
        for row in destinations:
            assert not row["channel"][len(self._planes) :].any(), "nothing may be written there"
            for plane, address, pitch in zip(
                self._planes, row["channel"], row["pitch"], strict=False
            ):
                for y, line in enumerate(plane):
                    ctypes.memmove(int(address + y * pitch), line.tobytes(), len(line))

    def free(self) -> None:
        """Do nothing: it holds no states."""


def staging_slot(
    room: int = 1 << 20, decoder: Decoder | None = None, readable: ReadableMemory | None = None
) -> GpuSlot:
    """Return a slot with `room` bytes for images, filled with poison."""

    def region(n_bytes: int) -> Region:
        made = Region(n_bytes, CPU)
        made.memory.fill_(POISON)
        return made

    return GpuSlot(
        first=region(room),
        second=region(room),
        weights=region(1 << 22),
        tables=Tables(CPU),
        host=torch.full((room,), POISON, dtype=torch.uint8),
        outputs={},
        marks=Marks(*[cast(torch.cuda.Event, NoEvent())] * 6),
        jpeg_blocks=JpegBlocks(16, room, CPU, readable or ReadableMemory(CPU)),
        decoder=decoder,
    )


def jpeg_file(height: int, width: int, orientation: int, subsampling: Subsampling) -> Jpeg:
    """Return a JPEG of noise with this size when it is upright."""
    stored = (width, height) if orientation >= 5 else (height, width)
    grey = subsampling is Subsampling.GREY
    pixels = noise(*stored, 1 if grey else 3)
    options = {} if grey else {"subsampling": SAMPLED[subsampling]}
    file = encoded(PillowImage.fromarray(pixels[..., 0] if grey else pixels), "JPEG", **options)
    return Jpeg(np.frombuffer(file, np.uint8), height, width, orientation, subsampling)


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random samples; alpha is 0 in a third of the pixels and 255 in another third."""
    random = np.random.default_rng([seed, height, width, channels])
    pixels = random.integers(0, 256, (height, width, channels), np.uint8)
    if channels == 4:
        kind = random.integers(0, 3, (height, width))
        pixels[..., 3] = np.where(kind == 0, 0, np.where(kind == 1, 255, pixels[..., 3]))
    return pixels
