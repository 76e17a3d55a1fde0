"""Rate and latency of a server in each of its first seconds after it is ready.

Method: a server is started, and asked for `/readyz` every 20 ms. When it answers 200, `--clients`
processes send raw JPEGs to `POST /classify?top_k=1` in a closed loop over `--connections` kept
connections in all; they are started before the server is ready, and wait. An answer counts in the
second in which its last byte came. Each second has its answers, and the median and 99th percentile
of their latency; `later` are the seconds from `--later` on. Anything but 200 is an error. A first
start, which compiles the kernels of a GPU, is left out with `--starts 2`.
What follows `--` goes to `darkroom serve`. Run:

python -m tests.bench.first_seconds [--connections 128] [--seconds 24] [--photos FOLDER] [-- FLAGS]
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from tests.bench.images import jpegs, subsampled
from tests.bench.load import Connections, Reply, closed_loop, raw_post
from tests.bench.report import report
from tests.bench.subject import answers as answered
from tests.bench.subject import started
from tests.ports import free_port

PATIENCE = 300.0

Answers = list[Reply]


def _load(
    port: int, connections: int, photos: list[bytes], ready: Event, seconds: float, found: Any
) -> None:
    """Ask over `connections` from the moment that the server is `ready`; put the answers."""
    requests = [raw_post("/classify?top_k=1", photo) for photo in photos]
    ready.wait()
    found.put(asyncio.run(closed_loop(Connections(port), requests, connections, seconds)))


def one_start(options: argparse.Namespace, photos: list[bytes], folder: Path) -> dict[str, Any]:
    """Start a server, load it from the first moment, and return what was seen."""
    port, context = free_port(), multiprocessing.get_context("fork")
    ready, found = context.Event(), context.Queue()
    share, more = divmod(options.connections, options.clients)
    clients = [
        context.Process(
            target=_load,
            args=(port, share + (number < more), photos, ready, options.seconds, found),
            daemon=True,
        )
        for number in range(options.clients)
    ]
    for each in clients:
        each.start()
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--grace", "0"]
    begun, is_up = [0.0], answered("/readyz")

    def is_ready(_port: int, log: Path) -> bool:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            if is_up(port, log):
                begun[0] = time.monotonic()
                ready.set()
                return True
            time.sleep(0.02)
        return False

    flags = [*command, "--log-level", "warning", *options.flags]
    with started(flags, port, folder / "log", is_ready, PATIENCE) as subject:
        answers: Answers = [
            each for _ in clients for each in found.get(timeout=options.seconds + 60)
        ]
        to_ready = subject.seconds_to_ready
    seconds = [_second(answers, begun[0] + n) for n in range(int(options.seconds))]
    later = [each for each in answers if each.at - begun[0] >= options.later]
    rate = round(len(later) / (options.seconds - options.later), 1)
    shown = {"rate": rate, **_latency([each.seconds for each in later])}
    first = seconds[0]
    return {
        "seconds_to_ready": to_ready,
        "first_rate_by_later": round(first["rate"] / rate, 3),
        "first_p99_by_later": round(first["p99_ms"] / shown["p99_ms"], 2),
        "errors": sum(each.status != 200 for each in answers),
        "later": shown,
        "seconds": seconds,
    }


def _second(answers: Answers, begin: float) -> dict[str, float]:
    latencies = [each.seconds for each in answers if begin <= each.at < begin + 1]
    return {"rate": len(latencies), **_latency(latencies)}


def _latency(latencies: list[float]) -> dict[str, float]:
    if len(latencies) < 2:
        return {"p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    parts = statistics.quantiles(latencies, n=100)
    named = {"p50_ms": parts[49], "p99_ms": parts[98], "max_ms": max(latencies)}
    return {name: round(value * 1e3, 1) for name, value in named.items()}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--later", type=float, default=12)
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs")
    parser.add_argument("--commit", default="", help="what was measured, for the result")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    if options.photos:
        paths = sorted(options.photos.iterdir())
        source, photos = "photos", [path.read_bytes() for path in paths]
    else:
        source, photos = jpegs(32)
        photos = [subsampled(each) for each in photos]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.starts):
            found = one_start(options, photos, Path(folder))
            print(json.dumps({k: v for k, v in found.items() if k != "seconds"}), flush=True)
            for number, each in enumerate(found["seconds"]):
                print(f"second {number + 1:2}: {each}", flush=True)
    images = f"{len(photos)} {source} of {sum(map(len, photos)) / len(photos) / 1e3:.0f} kB"
    report("first_seconds", commit=options.commit, images=images, **found)


if __name__ == "__main__":
    main()
