"""Measure the memory that each filter takes on a CPU, in bytes per pixel beside its input.

Method. For each filter's example, and some wider parameters, a child is forked that holds one
image. It resets the high-water mark of its resident memory, applies the filter, and reports how far
the mark rose. `estimate_ratio` is the estimate by which the service lets images in
(`Filter.memory`) by the measurement, and should be at least 1.

Run: python -m tests.bench.filter_memory [--megapixels 3]. The last line is one JSON object.
"""

import argparse
import ctypes
import json
import math
import os
from typing import Any

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.registry import FILTERS, parse_chain

WIDER: tuple[dict[str, Any], ...] = (
    {"name": "gaussian_blur", "sigma": 50},
    {"name": "median", "size": 31},
    {"name": "rank", "size": 31, "percentile": 50},
    {"name": "unsharp_mask", "sigma": 50},
    {"name": "pad", "left": 500, "border_mode": "mirror"},
    {"name": "resize", "width": 7000, "height": 7000, "fit": "fill"},
    {"name": "resize", "width": 2500, "height": 3000, "fit": "fill"},
    {"name": "resize", "width": 1900, "height": 1400, "fit": "fill"},
)

_MMAP_THRESHOLD = -3


def picture(megapixels: float, channels: int) -> Pixels:
    """Return a smooth picture of 4:3."""
    height = round((megapixels * 1e6 * 3 / 4) ** 0.5)
    width = round(height * 4 / 3)
    rng = np.random.default_rng(1)
    small = rng.integers(0, 256, (height // 8, width // 8, channels), np.uint8)
    return np.asarray(cv2.resize(small, (width, height)), np.uint8)


def risen(op: dict[str, Any], pixels: Pixels) -> int:
    """Return by how many bytes a child's memory rises when it applies the filter."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 17)  # so that freed memory does not count
        (filter_,) = parse_chain([op])
        filter_.apply(pixels[:64, :64].copy())
        before = _resident("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        filter_.apply(pixels)
        os.write(writing, str(_resident("VmHWM") - before).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        found = answer.read()
    os.waitpid(pid, 0)
    return int(found)


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(name))
    return int(line.split()[1]) << 10


def main() -> None:
    """Measure as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, default=3)
    megapixels = parser.parse_args().megapixels
    cv2.setNumThreads(1)
    found: dict[str, dict[str, float]] = {}
    for op in (*(dict(each.example) for each in FILTERS.values()), *WIDER):
        for channels, kind in ((3, "RGB"), (4, "RGBA")):
            pixels = picture(megapixels, channels)
            height, width = pixels.shape[:2]
            bytes_ = risen(op, pixels)
            (filter_,) = parse_chain([op])
            name = f"{json.dumps(op)} {kind}"
            found[name] = {
                "bytes_per_pixel": round(bytes_ / math.prod((height, width)), 1),
                "estimate_ratio": round(
                    filter_.memory((height, width, channels)) / max(bytes_, 1), 2
                ),
            }
            print(name, found[name], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
