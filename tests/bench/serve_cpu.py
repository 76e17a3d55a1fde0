"""HTTP /classify on a CPU against the same work in a plain loop, in one run.

Method. The plain loop is what a careful user writes without a server: decode (simplejpeg),
preprocess (Pillow), forward pass in batches of 32, same weights, same precision, same allocator
settings, all cores; once sequential and once with preprocessing on another thread, and the better
of the two counts. The loop for one image is the same with batch 1. Then a real server process gets
the same JPEGs as raw bodies over keep-alive connections from a closed-loop generator in this
process, at concurrency 1, 8 and 32. Loops and server alternate, twice, and the better figure of
each counts. Weights are random. Run: python -m tests.bench.serve_cpu [--precision bf16]
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import cycle, islice

import numpy as np
import torch

from models import codec
from models.malloc import keep_freed_memory
from models.networks.registry import RESNET18
from models.settings import Precision
from tests.bench import load
from tests.bench.images import jpegs
from tests.bench.report import report
from tests.pictures import as_image
from tests.server import serving
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import random_state
from workers.preprocess import crop

BATCH = 32
CONCURRENCIES = (1, 8, 32)


class Loop:
    """The plain loop."""

    def __init__(self, files: list[bytes], precision: Precision) -> None:
        cores = len(os.sched_getaffinity(0))
        self.network = CpuNetwork(random_state(0, 1000), precision, RESNET18)
        keep_freed_memory()
        torch.set_num_threads(cores)
        self.files = files

    def prepare(self, files: list[bytes]) -> np.ndarray:
        images = (as_image(codec.decode(file, max_pixels=50_000_000).image) for file in files)
        return np.stack([crop(image, RESNET18.preprocessing) for image in images])

    def sequential(self, seconds: float) -> float:
        """Return images per second when each step waits for the one before."""
        batches = cycle(self._batches())
        return _rate(lambda: self.network.logits(self.prepare(next(batches))), seconds)

    def overlapped(self, seconds: float) -> float:
        """Return images per second when the next batch is prepared on another thread."""
        batches = cycle(self._batches())
        with ThreadPoolExecutor(1) as pool:
            ahead = [pool.submit(self.prepare, next(batches))]

            def step() -> None:
                crops = ahead.pop().result()
                ahead.append(pool.submit(self.prepare, next(batches)))
                self.network.logits(crops)

            return _rate(step, seconds)

    def single(self, seconds: float) -> float:
        """Return the median milliseconds of one image alone."""
        times = []
        end = time.perf_counter() + seconds
        for file in cycle(self.files):
            start = time.perf_counter()
            self.network.logits(self.prepare([file]))
            times.append(time.perf_counter() - start)
            if time.perf_counter() > end:
                return float(np.median(times) * 1e3)
        raise AssertionError

    def _batches(self) -> list[list[bytes]]:
        endless = cycle(self.files)
        return [list(islice(endless, BATCH)) for _ in range(6)]


def _rate(step: Callable[[], object], seconds: float) -> float:
    step()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * BATCH / (time.perf_counter() - start)


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--precision", default="auto")
    arguments.add_argument("--seconds", type=float, default=10.0)
    options = arguments.parse_args()
    source, files = jpegs(192)
    requests = [load.raw_post("/classify", file, "image/jpeg") for file in files]
    loop = Loop(files, Precision(options.precision))
    plain, single = 0.0, float("inf")
    best: dict[int, load.Report] = {}
    for _ in range(2):
        plain = max(plain, loop.sequential(options.seconds), loop.overlapped(options.seconds))
        single = min(single, loop.single(options.seconds / 2))
        flags = ("--weights", "random", "--gpus", "0", "--precision", loop.network.precision)
        with serving(*flags, "--log-level", "warning") as server:
            load.run(server.port, requests, 8, 2.0)
            for concurrency in CONCURRENCIES:
                found = load.run(server.port, requests, concurrency, options.seconds)
                if concurrency not in best or found.per_second > best[concurrency].per_second:
                    best[concurrency] = found
    print(f"plain loop, batch {BATCH}: {plain:.1f} img/s; one image: {single:.2f} ms")
    for concurrency, each in best.items():
        print(f"HTTP, concurrency {concurrency}: {each}")
    report(
        "serve_cpu",
        images=source,
        precision=loop.network.precision,
        plain_loop_per_second=round(plain, 1),
        plain_single_ms=round(single, 2),
        http={str(connections): asdict(each) for connections, each in best.items()},
        ratio_8=round(best[8].per_second / plain, 3),
        ratio_32=round(best[32].per_second / plain, 3),
        p50_ratio_1=round(best[1].p50_ms / single, 3),
    )


if __name__ == "__main__":
    main()
