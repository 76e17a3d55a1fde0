"""Filters on a GPU: kernel rate as a share of what copying the same images on the device takes.

Method. 32 random RGB images of 1920 × 1080 in one batch, as the engine lays it out; each filter's
passes are launched one after the other on one stream, ten times between two events, after two
rounds to warm up; the median of seven such runs counts. The copy is torch's, of the same bytes, by
the same clock. Uploads, downloads and tables are not counted.

Run: python -m tests.bench.filters_gpu
"""

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from tests.bench.report import report
from workers.engines.cuda.kernels import Kernels
from workers.filters.base import Filter
from workers.filters.registry import FILTERS, parse_one
from workers.kernels.items import ITEM, THREADS, starts

HEIGHT, WIDTH, CHANNELS, N = 1080, 1920, 3, 32
SHAPE = (HEIGHT, WIDTH, CHANNELS)
SIZE = HEIGHT * WIDTH * CHANNELS
EXTRA: list[tuple[str, dict[str, Any]]] = [
    ("gaussian_blur", {"sigma": 10}),
    ("box_blur", {"radius": 20}),
    ("box_blur", {"radius": 200}),
    ("morphology", {"op": "erode", "size": 15}),
    ("median", {"size": 5}),
    ("median", {"size": 7}),
    ("median", {"size": 15}),
    ("median", {"size": 31}),
    ("resize", {"width": 960, "height": 540, "fit": "fill"}),
    ("resize", {"width": 960, "height": 540, "fit": "fill", "method": "lanczos"}),
    ("resize", {"width": 224, "height": 224, "fit": "cover"}),
]


class Batch:
    """The images, room for results and scratch, and a table of both."""

    def __init__(self, filter_: Filter, images: torch.Tensor) -> None:
        self._shape = filter_.shape_after(SHAPE)
        result, scratch = _aligned(math.prod(self._shape)), _aligned(filter_.device_scratch(SHAPE))
        self._results = torch.empty((N, result), dtype=torch.uint8, device="cuda")
        self._scratch = torch.empty(N * scratch, dtype=torch.uint8, device="cuda")
        data = np.frombuffer(filter_.device_data(SHAPE), np.uint8)
        room = _aligned(len(data))
        self._data = torch.zeros((N, room), dtype=torch.uint8, device="cuda")
        self._data[:, : len(data)] = torch.from_numpy(data.copy()).cuda()
        table = np.zeros(N, ITEM)
        for index, row in enumerate(table):
            row["src"] = images.data_ptr() + index * SIZE
            row["dst"] = self._results.data_ptr() + index * result
            row["scratch"] = self._scratch.data_ptr() + index * scratch
            row["data"] = self._data.data_ptr() + index * room
            row["height"], row["width"], row["channels"] = SHAPE
        self._passes = []
        for step, each in enumerate(filter_.device_passes):
            table["step"] = step
            blocks = starts(each, [self._shape if each.of_result else SHAPE] * N)
            first = torch.from_numpy(blocks.view(np.int32)).cuda()
            rows = torch.from_numpy(table.view(np.uint8)).cuda()
            self._passes.append((each.kernel, int(blocks[-1]), rows, first))

    def launch(self, kernels: Kernels) -> None:
        for kernel, blocks, rows, first in self._passes:
            arguments = (rows.data_ptr(), first.data_ptr(), np.int32(N))
            kernels.launch(kernel, blocks, THREADS, arguments)

    def first(self) -> np.ndarray:
        """Return the first result, uint8 (H, W, C)."""
        used = self._results[0, : math.prod(self._shape)]
        return used.cpu().numpy().reshape(self._shape)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // 256) * 256


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of one call, the median of seven runs of ten."""
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    work()
    work()
    runs = []
    for _ in range(7):
        begun.record()
        for _ in range(10):
            work()
        ended.record()
        ended.synchronize()
        runs.append(float(begun.elapsed_time(ended)) / 1e4)
    return statistics.median(runs)


def main() -> None:
    """Measure everything, print a table, and all of it as JSON on the last line."""
    kernels = Kernels()
    pixels = np.random.default_rng(0).integers(0, 256, (N, *SHAPE), np.uint8)
    images = torch.from_numpy(pixels).cuda()
    target = torch.empty_like(images)
    copy = N / seconds(lambda: target.copy_(images))
    plain: list[tuple[str, dict[str, Any]]] = [
        (name, {}) for name, each in FILTERS.items() if each.passes
    ]
    rows = []
    for name, parameters in plain + EXTRA:
        filter_ = parse_one(
            name, parameters or {k: v for k, v in FILTERS[name].example.items() if k != "name"}
        )
        batch = Batch(filter_, images)
        rate = N / seconds(partial(batch.launch, kernels))
        batch = Batch(filter_, images)  # with its data as it was: some kernels add to it
        batch.launch(kernels)
        distance = np.abs(batch.first() - filter_.apply(pixels[0]).astype(np.int16))
        off = float(np.mean(distance > 0))
        row = {"filter": name, "parameters": parameters, "images_per_second": int(rate)}
        row |= {"share_of_copy": round(rate / copy, 3), "byte_equal": off == 0}
        row |= {"share_off_by_one": off, "most_off": int(distance.max())}
        rows.append(row)
        print(f"{name:16} {parameters!s:18} {rate:10,.0f} img/s {rate / copy:6.3f} {off == 0}")
    report("filters_gpu", copy_images_per_second=int(copy), filters=rows)


if __name__ == "__main__":
    main()
