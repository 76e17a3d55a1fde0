"""A staging slot in the memory of the CPU, and kernels that run there: the engine without a GPU."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

from tests.emulation.emulator import emulator
from workers.engines.cuda.nvjpeg import Decoder, NvJpegError
from workers.engines.cuda.slot import Marks, Region, Slot, Tables

CPU = torch.device("cpu")
POISON = 0xCD


class EmulatedKernels:
    """What `workers.engines.cuda.modules.Kernels` does, at once; `launched` are their names."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        self.launched.append(name)
        if blocks:
            emulator().call(name, blocks, threads, *(int(each) for each in arguments))


class NoStreams:
    """What `Streams` does where everything happens in the order it is said."""

    @contextmanager
    def uploading(self, slot: Slot) -> Iterator[None]:
        yield

    computing = downloading = uploading


class NoEvent:
    """An event nobody waits for."""

    def record(self) -> None:
        pass


class Planes:
    """A decoder that writes known planes, or fails as the real one does."""

    def __init__(self, planes: Sequence[np.ndarray[Any, Any]], *, fails: bool = False) -> None:
        self._planes = planes
        self._fails = fails

    def decode(self, data: Any, lengths: Any, destinations: Any, stream: int) -> None:
        if self._fails:
            raise NvJpegError("nvjpegDecodeBatched", 4)
        for row in destinations:
            for plane, address, pitch in zip(
                self._planes, row["channel"], row["pitch"], strict=False
            ):
                for y, line in enumerate(plane):
                    ctypes.memmove(int(address + y * pitch), line.tobytes(), len(line))


def staging_slot(room: int = 1 << 20, decoder: Decoder | None = None) -> Slot:
    """A slot with `room` bytes for images, poisoned."""

    def region(n_bytes: int) -> Region:
        made = Region(n_bytes, CPU)
        made.memory.fill_(POISON)
        return made

    return Slot(
        first=region(room),
        second=region(room),
        weights=region(1 << 22),
        tables=Tables(CPU),
        host=torch.full((room,), POISON, dtype=torch.uint8),
        outputs={},
        marks=cast(Marks, Marks(*[cast(torch.cuda.Event, NoEvent())] * 6)),
        decoder=decoder,
    )


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Random samples; alpha is 0 or 255 in a third of the pixels each."""
    random = np.random.default_rng([seed, height, width, channels])
    pixels = random.integers(0, 256, (height, width, channels), np.uint8)
    if channels == 4:
        kind = random.integers(0, 3, (height, width))
        pixels[..., 3] = np.where(kind == 0, 0, np.where(kind == 1, 255, pixels[..., 3]))
    return pixels
