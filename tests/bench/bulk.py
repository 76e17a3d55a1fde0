"""`darkroom classify` of many photos, against a plain loop.

Method. A list repeats the photos of a folder until it has `--count` lines. The command classifies
it into a file of JSON Lines, and before that a list of `--few` lines: the difference of the two
runs is the rate without the start, in seconds and in CPU seconds of all its processes. With
`--loop` the plain loop of `serve_cpu` runs before and after, over the same files, in this process:
read, decode (simplejpeg), preprocess (Pillow), forward pass in batches of 32, same precision; the
better one counts. Where other programs share the cores, compare CPU seconds an image: `cpu_ratio`.
Weights are random. CPU time of the client is that of the command and of its sending processes,
looked at every 0.05 seconds. A run that is not measured comes first, because the first one on a GPU
compiles kernels.
Run: python -m tests.bench.bulk --photos FOLDER [--count 10000] [--few 1000] [--loop]
[--flags "--gpus 0"]
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.settings import Precision
from tests.bench.report import report

DARKROOM = [sys.executable, "-m", "app.cli"]

SENDER = "sender of a command"
"""The name of the sending processes in lists of processes."""

UNMEASURED = 64
"""Images of the run before all others."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What some images took: seconds of the wall clock, of CPU time, and of that of the client."""

    images: int
    seconds: float
    cpu: float
    client: float = 0.0

    def without(self, other: "Cost") -> "Cost":
        """Return what this run took beyond another one."""
        seconds, cpu = self.seconds - other.seconds, self.cpu - other.cpu
        return Cost(self.images - other.images, seconds, cpu, self.client - other.client)

    def figures(self) -> dict[str, float]:
        """Return the rate and the CPU time of an image in milliseconds."""
        per_second = self.images / self.seconds
        return {
            "images_per_second": round(per_second, 1),
            "cpu_ms_per_image": round(1e3 * self.cpu / self.images, 3),
            "client_cpu_ms_per_image": round(1e3 * self.client / self.images, 3),
        }


def listed(photos: Path, count: int, file: Path) -> Path:
    """Write a list of `count` photos, which repeats those of a folder; return it."""
    names = sorted(str(path.resolve()) for path in photos.iterdir() if path.is_file())
    file.write_text("".join(f"{name}\n" for name in islice(cycle(names), count)))
    return file


def command(folder: Path, sources: Path, count: int, flags: list[str]) -> Cost:
    """Run the command over a list; the cost includes all processes that it started."""
    out = folder / f"labels-{count}.jsonl"
    words = [*DARKROOM, "classify", "--from", str(sources), "--out", str(out), "--force", *flags]
    before, began = os.times(), time.monotonic()
    client = 0.0
    with subprocess.Popen(words) as process:
        while process.poll() is None:
            client = max(client, client_seconds(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    seconds, after = time.monotonic() - began, os.times()
    used = after.children_user + after.children_system
    cpu = used - before.children_user - before.children_system
    with out.open("rb") as lines:
        assert sum(1 for _ in lines) == count
    return Cost(count, seconds, cpu, client)


def client_seconds(command: int) -> float:
    """Return the CPU seconds of a command and its sending processes, 0 once it has ended."""
    try:
        tasks = Path(f"/proc/{command}/task").glob("*/children")
        children = [each for task in tasks for each in task.read_text().split()]
        senders = [each for each in children if SENDER in Path(f"/proc/{each}/cmdline").read_text()]
        stats = [Path(f"/proc/{each}/stat").read_text() for each in (command, *senders)]
    except OSError:
        return 0.0
    ticks = sum(sum(map(int, each.rpartition(")")[2].split()[11:13])) for each in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def plain_loop(sources: Path, precision: str, images: int) -> Cost:
    """Classify images of a list in a loop without a service."""
    from tests.bench.serve_cpu import BATCH, Loop

    names = sources.read_text().splitlines()
    loop = Loop([], Precision(precision))
    loop.network.logits(loop.prepare([Path(names[0]).read_bytes()] * BATCH))
    files, done = cycle(names), 0
    began, cpu = time.monotonic(), time.process_time()
    while done < images:
        batch = [Path(name).read_bytes() for name in islice(files, BATCH)]
        loop.network.logits(loop.prepare(batch))
        done += BATCH
    return Cost(done, time.monotonic() - began, time.process_time() - cpu)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--flags", default="", help="further flags of the command")
    given = parser.parse_args()
    flags = ["--weights", "random", "--precision", given.precision, *shlex.split(given.flags)]
    result: dict[str, Any] = {"count": given.count, "few": given.few}
    with TemporaryDirectory() as name:
        folder = Path(name)
        many = listed(given.photos, given.count, folder / "many")
        few = listed(given.photos, given.few, folder / "few")
        loops = []
        if given.loop:
            loops.append(plain_loop(many, given.precision, given.count // 4))
        command(folder, listed(given.photos, UNMEASURED, folder / "first"), UNMEASURED, flags)
        start = command(folder, few, given.few, flags)
        whole = command(folder, many, given.count, flags)
        if given.loop:
            loops.append(plain_loop(many, given.precision, given.count // 4))
    cost = whole.without(start)
    result |= {"runs": [asdict(start), asdict(whole)], "bulk": cost.figures()}
    if loops:
        best = min(loops, key=lambda each: each.cpu / each.images)
        rate = max(each.images / each.seconds for each in loops)
        result["plain_loop"] = {**best.figures(), "images_per_second": round(rate, 1)}
        result["rate_ratio"] = round(cost.images / cost.seconds / rate, 3)
        result["cpu_ratio"] = round((best.cpu / best.images) / (cost.cpu / cost.images), 3)
    report("bulk", **result)


if __name__ == "__main__":
    main()
