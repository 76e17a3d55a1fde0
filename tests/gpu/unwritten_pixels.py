"""Print what nvJPEG's decode engines leave in the pixels of a JPEG that was cut and closed.

Run it on a GPU with decode engines: python -m tests.gpu.unwritten_pixels

Each case decodes a bright image and then a cut dark one with the same state. The destination is
filled with a pattern before. The missing pixels then show the pattern (the engines write to the
destination), the bright image (the engines write to memory of the state, which nvJPEG copies), or
other values. A second part fills each allocation of the state with the pattern before the cut image
is decoded, each in a process of its own, because a wrong write may end the use of the device.
"""

import ctypes
import subprocess
import sys
from collections.abc import Sequence

import cupy
import numpy as np
import torch

from models.codec.jpeg import inspect
from models.domain.image import Jpeg, Pixels
from tests.gpu.conftest import jpeg
from tests.gpu.test_decode import closed, scene
from workers.engines.cuda.nvjpeg import DESTINATION, HARDWARE, UNCHANGED, NvJpeg
from workers.engines.cuda.slot import Region
from workers.engines.cuda.sources import planes

PATTERN = 0xA5
SIZES = ((200, 151), (641, 481), (1500, 1126), (3000, 2251))
SHARES = (0.05, 0.5, 0.9, 0.99)
SMALLEST = 1 << 12
"""Bytes of the smallest allocation that is filled in the second part."""

Malloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
Free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Allocator(ctypes.Structure):
    """nvjpegDevAllocator_t."""

    _fields_ = [("malloc", Malloc), ("free", Free)]


class Library(NvJpeg):
    """nvJPEG with the decode engines, which notes its allocations on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: dict[int, int] = {}
        self._allocator = Allocator(Malloc(self._malloc), Free(self._free))
        self.handle = ctypes.c_void_p()
        allocator = ctypes.byref(self._allocator)
        self.call("nvjpegCreateEx", HARDWARE, allocator, None, 0, ctypes.byref(self.handle))

    def _malloc(self, address: "ctypes._Pointer[ctypes.c_void_p]", n_bytes: int) -> int:
        found = cupy.cuda.runtime.malloc(max(1, n_bytes))
        self.allocated[found] = n_bytes
        address[0] = found
        return 0

    def _free(self, address: int | None) -> int:
        if address:
            self.allocated.pop(address, None)
            cupy.cuda.runtime.free(address)
        return 0


class Bench:
    """One state for one file, and one destination."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        self.library = Library()
        self.memory = Region(1 << 28, torch.device("cuda:0"))
        self.state = self.library.state(1)

    def decoded(self, source: Jpeg) -> Pixels:
        """Return the memory of all planes, which held the pattern before."""
        self.memory.used = 0
        row = planes(source, self.memory)
        self.memory.memory.fill_(PATTERN)
        torch.cuda.synchronize()
        destination = np.zeros(1, DESTINATION)
        destination["channel"][0, :3], destination["pitch"][0, :3] = row[0], row[1]
        address = np.array([source.data.__array_interface__["data"][0]], np.uint64)
        lengths = np.array([len(source.data)], np.uint64)
        stream = torch.cuda.current_stream().cuda_stream
        self.library.decode(self.state, address, lengths, destination, stream)
        torch.cuda.synchronize()
        found: Pixels = self.memory.memory[: self.memory.used].cpu().numpy()
        return found

    def fill_state(self, numbers: Sequence[int]) -> None:
        """Fill allocations of the library with the pattern."""
        allocated = [*self.library.allocated.items()]
        for number in numbers:
            cupy.cuda.runtime.memset(allocated[number][0], PATTERN, allocated[number][1])
        torch.cuda.synchronize()


def source_of(file: bytes) -> Jpeg:
    """Return a JPEG without looking whether it is whole."""
    found = inspect(file)
    assert found is not None
    return Jpeg(np.frombuffer(file, np.uint8), found.height, found.width, 1, found.subsampling)


def sources(size: tuple[int, int], subsampling: int) -> tuple[Jpeg, Jpeg, bytes]:
    """Return a bright JPEG, a dark one, and the file of the dark one."""
    files = [
        jpeg(scene(*size, seed, level), subsampling=subsampling)
        for seed, level in ((1, 180), (2, 20))
    ]
    return source_of(files[0]), source_of(files[1]), files[1]


def cut_of(whole: Jpeg, file: bytes, share: float) -> Jpeg:
    """Return the file cut and closed, with the size of the whole one."""
    data = np.frombuffer(closed(file, share), np.uint8)
    return Jpeg(data, whole.height, whole.width, 1, whole.subsampling)


def shares(found: Pixels, whole: Pixels, earlier: Pixels) -> dict[str, float]:
    """Return of which values the wrong samples are, as shares of all wrong samples."""
    written = whole != PATTERN  # padding keeps the pattern, and so may a few samples
    wrong = (found != whole) & written
    values, before = found[wrong], earlier[wrong]
    kinds = {
        "pattern": values == PATTERN,
        "earlier image": (values == before) & (values != PATTERN),
        "zero": values == 0,
        "grey": values == 128,
    }
    kinds["other"] = ~np.logical_or.reduce([*kinds.values()])
    total = max(1, len(values))
    return {"wrong": float(wrong.sum() / max(1, written.sum()))} | {
        name: round(float(each.sum() / total), 3) for name, each in kinds.items()
    }


def first_part() -> None:
    """Print what the missing pixels show, and the allocations of the library."""
    verdicts = []
    for size in SIZES:
        for subsampling in (0, 1, 2):
            bright, dark, file = sources(size, subsampling)
            bench = Bench()
            whole, earlier = bench.decoded(dark), bench.decoded(bright)
            for share in SHARES:
                bench.decoded(bright)
                found = shares(bench.decoded(cut_of(dark, file, share)), whole, earlier)
                print(size, ("444", "422", "420")[subsampling], share, found, flush=True)
                verdicts.append(found)
            bench.decoded(bright)
            same = np.array_equal(bench.decoded(dark), whole)
            print("  a good file after it is the same:", same, flush=True)
    print("allocations:", [*bench.library.allocated.values()])
    print("unchanged format:", UNCHANGED)
    for name in ("pattern", "earlier image", "zero", "grey", "other"):
        print(
            f"share of {name}: {min(v[name] for v in verdicts)} to {max(v[name] for v in verdicts)}"
        )
    if all(v["wrong"] and v["pattern"] > 0.9 for v in verdicts):
        print("VERDICT: destination")
    else:
        print("VERDICT: not the destination; see the second part")


def second_part(numbers: Sequence[int]) -> None:
    """Fill allocations before decoding, and print what a cut and a good file become."""
    bright, dark, file = sources((641, 481), 2)
    bench = Bench()
    whole, earlier = bench.decoded(dark), bench.decoded(bright)
    sizes = [*bench.library.allocated.values()]
    bench.fill_state(numbers)
    found = shares(bench.decoded(cut_of(dark, file, 0.5)), whole, earlier)
    bench.fill_state(numbers)
    same = np.array_equal(bench.decoded(dark), whole)
    print([sizes[n] for n in numbers], found, "good file the same:", same, flush=True)
    if found["pattern"] > 0.9 and same:
        print("VERDICT: state memory, allocations", [sizes[n] for n in numbers])


def main() -> None:
    """Run the first part here, and the second in processes."""
    if len(sys.argv) > 1:
        second_part([int(n) for n in sys.argv[1].split(",")])
        return
    first_part()
    bench, (bright, *_) = Bench(), sources((641, 481), 2)
    bench.decoded(bright)
    numbers = [n for n, size in enumerate(bench.library.allocated.values()) if size >= SMALLEST]
    groups = [[n] for n in numbers] + ([numbers] if len(numbers) > 1 else [])
    for group in groups:
        command = [sys.executable, "-m", "tests.gpu.unwritten_pixels", ",".join(map(str, group))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        print(done.stdout.strip() or f"{group} failed: {done.stderr.strip().splitlines()[-1:]}")


if __name__ == "__main__":
    main()
