"""Every filter's CPU specification against the fastest library call for the same job.

Method. One RGB image of 1920 × 1080, smooth colours with grain; both calls take and give uint8 RGB
and have one thread, as a worker on a CPU gives every batch a core. Time is the processor's, so that
what else runs counts only for the caches it takes. They are timed in turns, ours first, for as many
rounds as fit `--seconds`, 3 at least and 60 at most, after one round to warm up; the fastest round
of each counts, because the slower ones measure the rest of the machine. Freed memory is kept, as a
worker keeps it. A ratio above 1 means that ours takes longer.

Run: python -m tests.bench.filters_cpu [--seconds 2] [--only NAME …]

Above 1.5 because of what they mean: Gaussians (gaussian_blur, unsharp_mask, dog) keep 24 bits of a
fraction, in float64, where OpenCV keeps 8 or the peer float32; color_matrix and sepia have weights
of 16 bits, OpenCV of 10; sharpen rounds twice, as Pillow does, and its peer has five weights
instead of nine; brightness looks up every byte, because 80 and 100 times 1.3 are 104 and 130 in
Pillow's float32, but 90 times 1.3 is cut off at 116, which no multiplication and addition repeats.
Blends with an image (saturation, sharpen) are one call of OpenCV only for factors that leave room
for its roundings, which are nine tenths of those tried; 1.5 and 2 are among them, 1.3 is not.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
from PIL import __version__ as pillow_version

from models.malloc import keep_freed_memory
from tests.bench.filter_peers import PEERS, Peer, Pixels
from tests.bench.report import report
from tests.pictures import drawing
from workers.filters.registry import parse_chain

WIDTH, HEIGHT = 1920, 1080
FEWEST, MOST = 3, 60
"""Rounds."""


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the process for one call; other load does not count."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def compared(ours: Peer, theirs: Peer, pixels: Pixels, limit: float) -> tuple[float, float]:
    """Return the fastest time of each, in seconds."""
    calls = [partial(ours, pixels), partial(theirs, pixels)]
    for call in calls:
        call()
    rounds: list[list[float]] = []
    begun = time.perf_counter()
    while len(rounds) < FEWEST or (len(rounds) < MOST and time.perf_counter() - begun < limit):
        rounds.append([seconds(call) for call in calls])
    one, other = (min(times) for times in zip(*rounds, strict=True))
    return one, other


def main() -> None:
    """Measure everything, print a table, and all of it as JSON on the last line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--only", nargs="*", default=list(PEERS))
    given = arguments.parse_args()
    keep_freed_memory()
    cv2.setNumThreads(1)
    pixels = np.asarray(drawing(WIDTH, HEIGHT))
    rows = []
    for name in given.only:
        parameters, peer = PEERS[name]
        (filter_,) = parse_chain([{"name": name, **parameters}])
        ours, theirs = compared(filter_.apply, peer, pixels, given.seconds)
        row = {"filter": name, "parameters": parameters, "milliseconds": round(1e3 * ours, 2)}
        row |= {"peer_milliseconds": round(1e3 * theirs, 2), "ratio": round(ours / theirs, 2)}
        rows.append(row)
        print(f"{name:20} {1e3 * ours:9.2f} ms {1e3 * theirs:9.2f} ms {ours / theirs:6.2f}")
    versions = {"opencv": cv2.__version__, "numpy": np.__version__, "pillow": pillow_version}
    report("filters_cpu", **versions, filters=rows)


if __name__ == "__main__":
    main()
