"""Run kernels of `workers.kernels` on the CPU: any by name, one pass, or filters over a batch.

Every buffer lies between guard bytes and is filled with poison first, so that tests notice bytes
that a kernel does not write and bytes that it writes beyond the end.
"""

import ctypes
import fcntl
import functools
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.filters.base import Filter
from workers.kernels import loader
from workers.kernels.items import ITEM, THREADS, Pass, Shape, starts

HEADER = Path(__file__).with_name("cuda.hpp")
ROOT = "".join(f'#include "{each.name}"\n' for each in loader.modules())
"""The text that includes all kernels."""

FLAGS = ("-std=c++17", "-w", f"-I{loader.FOLDER}", "-include", str(HEADER))
"""Options with which g++ reads any file of the kernels as C++."""

OPTIONS = ("-O1", "-fno-strict-aliasing", "-ffp-contract=off", "-fPIC", "-shared")
GUARD, POISON = 256, 0xCD


class Memory:
    """Bytes at an aligned address with guard bytes on both sides."""

    def __init__(self, size: int, content: bytes | None = None, alignment: int = 256) -> None:
        self._whole = np.full(size + 2 * GUARD + alignment, POISON, np.uint8)
        first = GUARD + -(self._whole.ctypes.data + GUARD) % alignment
        self.bytes = self._whole[first : first + size]
        self._guards = (self._whole[:first], self._whole[first + size :])
        self.address = self._whole.ctypes.data + first
        if content is not None:
            self.bytes[:] = np.frombuffer(content, np.uint8)

    def check(self) -> None:
        assert all((guard == POISON).all() for guard in self._guards), "written beyond a buffer"


class Emulator:
    """The kernels as a shared library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def call(self, kernel: str, blocks: int, threads: int, *arguments: int) -> None:
        """Run any kernel; `arguments` are the addresses and integers of its prototype."""
        values = (ctypes.c_uint64 * max(len(arguments), 1))(*arguments)
        address = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p)
        self._library.emulate(address, blocks, threads, values, len(arguments))

    def run_pass(
        self, pass_: Pass, items: NDArray[np.void], shapes: Sequence[Shape] | None = None
    ) -> None:
        """Launch one pass over rows of `ITEM`; blocks cover `shapes`, else the rows themselves."""
        sources = [(int(i["height"]), int(i["width"]), int(i["channels"])) for i in items]
        first = starts(pass_, shapes or sources)
        blocks = int(first[-1])
        self.call(pass_.kernel, blocks, THREADS, items.ctypes.data, first.ctypes.data, len(items))

    def run(self, filters: Sequence[Filter], images: Sequence[Pixels]) -> list[Pixels]:
        """Run all passes of filters of one class as one batch; filters[i] belongs to images[i]."""
        assert len({f.device_passes for f in filters}) == 1, "these filters share no batch"
        sources = [Memory(p.size, p.tobytes()) for p in images]
        shapes = [f.shape_after(_shape(p)) for f, p in zip(filters, images, strict=True)]
        results = [Memory(math.prod(shape)) for shape in shapes]
        scratches = [
            Memory(f.device_scratch(_shape(p))) for f, p in zip(filters, images, strict=True)
        ]
        blobs = [f.device_data(_shape(p)) for f, p in zip(filters, images, strict=True)]
        data = [Memory(len(blob), blob, 16) for blob in blobs]
        items = np.zeros(len(images), ITEM)
        for i, memory in enumerate(zip(sources, results, scratches, data, strict=True)):
            height, width, channels = images[i].shape
            items[i] = (*(m.address for m in memory), width, height, channels, 0)
        for step, pass_ in enumerate(filters[0].device_passes):
            items["step"] = step
            self.run_pass(pass_, items, shapes if pass_.of_result else None)
        for used in (*sources, *results, *scratches, *data):
            used.check()
        for source, pixels in zip(sources, images, strict=True):
            assert source.bytes.tobytes() == pixels.tobytes(), "a kernel wrote to its source"
        return [r.bytes.reshape(shape).copy() for r, shape in zip(results, shapes, strict=True)]


def compiler() -> str:
    """Return g++, or skip the test where it is not installed."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("g++ is not installed; it reads the kernels as C++")
    return found


@functools.cache
def emulator(root: str = ROOT) -> Emulator:
    """Return the library of a text and its includes, which is kept under a hash of its sources."""
    command = [compiler(), *FLAGS, *OPTIONS, "-x", "c++", "-", "-o"]
    text = loader.expanded(root)
    content = f"{text}{HEADER.read_text()}{FLAGS}{OPTIONS}"
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"darkroom-emulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{key}.so"
    with (folder / "lock").open("w") as lock:  # parallel test processes wait for one compilation
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            made = folder / f"{key}.{os.getpid()}.so"
            subprocess.run([*command, str(made)], input=text.encode(), check=True)
            made.replace(library)
    return Emulator(library)


def _shape(pixels: Pixels) -> tuple[int, int, int]:
    height, width, channels = pixels.shape
    return height, width, channels
