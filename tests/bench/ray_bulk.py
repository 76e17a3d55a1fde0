"""`darkroom classify --ray` with one actor, against the engine of one process on as many cores.

Method. A cluster of one node with `--cpus` CPUs runs on this machine, so the command has one actor.
The command classifies lists of `--few` and of `--count` lines, which repeat the photos of a folder,
once without Ray (`--threads` is `--cpus`) and once with it; this is repeated `--rounds` times in
turn. The difference of the two lists is the rate without the start, in seconds of the wall clock
and in seconds of CPU time. The CPU time with Ray is that of the command and of the actor, without
Ray's own processes, which `others_cpu_s` has. `rate_ratio` and `cpu_ratio` compare the medians of
the rounds; above 1 Ray is better. Where other programs share the cores, only `cpu_ratio` means
much. Weights are random, the precision is fp32. The results are compared to the byte.
Run: python -m tests.bench.ray_bulk --photos FOLDER [--cpus 1] [--count 400] [--few 100]
[--rounds 3]
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import TracebackType

from tests.bench.bulk import Cost, command, listed
from tests.ray_nodes import nodes

ACTOR = "ray::DarkroomActor"
LOOK = 0.1
"""Seconds between two looks at the CPU time of actors, which end with the command."""


class RayTimes:
    """The CPU time of actors, and of all other processes of Ray, while the block runs."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[bool, float]] = {}
        self._before: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "RayTimes":
        self._before = {process: cpu for process, _, cpu in _ray_processes()}
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def seconds(self, *, of_actors: bool) -> float:
        """Return the CPU time of actors, or of the other processes."""
        return sum(
            cpu - self._before.get(process, 0.0)
            for process, (is_actor, cpu) in self._seen.items()
            if is_actor is of_actors
        )

    def _watch(self) -> None:
        while not self._stop.wait(LOOK):
            for process, is_actor, cpu in _ray_processes():
                was_actor = self._seen.get(process, (False, 0.0))[0]
                self._seen[process] = (is_actor or was_actor, cpu)


def _ray_processes() -> list[tuple[int, bool, float]]:
    """Return each process of Ray, whether it is an actor of ours, and its CPU time in seconds."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if ACTOR not in words and "/ray/" not in words and "ray::" not in words:
                continue
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        cpu = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        found.append((int(folder.name), ACTOR in words, cpu))
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """The costs of the images beyond the start, without and with Ray."""

    alone: Cost
    on_ray: Cost
    others_cpu_s: float


def measured(
    folder: Path, few: Path, many: Path, counts: tuple[int, int], flags: list[str]
) -> Cost:
    """Return the cost of the second list beyond that of the first one."""
    start = command(folder, few, counts[0], flags)
    return command(folder, many, counts[1], flags).without(start)


def measured_on_ray(
    folder: Path, few: Path, many: Path, counts: tuple[int, int], flags: list[str]
) -> tuple[Cost, float]:
    """Return the same cost with Ray, and the CPU time of Ray's own processes in the longer run."""
    costs, others = [], 0.0
    for sources, count in zip((few, many), counts, strict=True):
        with RayTimes() as times:
            cost = command(folder, sources, count, flags)
        costs.append(Cost(count, cost.seconds, cost.cpu + times.seconds(of_actors=True)))
        others = times.seconds(of_actors=False)
    return costs[1].without(costs[0]), others


def rounds(given: argparse.Namespace, folder: Path, address: str) -> list[Round]:
    """Measure both engines in turn."""
    few = listed(given.photos, given.few, folder / "few")
    many = listed(given.photos, given.count, folder / "many")
    counts = given.few, given.count
    flags = ["--weights", "random", "--precision", "fp32", "--gpus", "0"]
    out = folder / f"labels-{given.count}.jsonl"
    found = []
    for number in range(given.rounds):
        one = measured(folder, few, many, counts, [*flags, "--threads", str(given.cpus)])
        expected = out.read_bytes()
        ray, others = measured_on_ray(folder, few, many, counts, [*flags, "--ray", address])
        assert out.read_bytes() == expected, "the records differ"
        found.append(Round(one, ray, others))
        print(f"round {number}: {one.figures()} {ray.figures()}", file=sys.stderr)
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with TemporaryDirectory() as name, nodes(given.cpus) as cluster:
        found = rounds(given, Path(name), cluster.address)
    rates = [median(c.images / c.seconds for c in each) for each in _columns(found)]
    cpus = [median(c.cpu / c.images for c in each) for each in _columns(found)]
    result = {
        "benchmark": "ray_bulk",
        "command": f"python -m tests.bench.ray_bulk {shlex.join(sys.argv[1:])}",
        "cores": len(os.sched_getaffinity(0)),
        "ray": subprocess.check_output(
            [sys.executable, "-c", "import ray; print(ray.__version__)"], text=True
        ).strip(),
        "cpus": given.cpus,
        "rounds": [
            {
                "alone": each.alone.figures(),
                "ray": each.on_ray.figures(),
                "others_cpu_s": round(each.others_cpu_s, 2),
            }
            for each in found
        ],
        "rate_ratio": round(rates[1] / rates[0], 3),
        "cpu_ratio": round(cpus[0] / cpus[1], 3),
    }
    print(json.dumps(result))


def _columns(found: list[Round]) -> tuple[list[Cost], list[Cost]]:
    return [each.alone for each in found], [each.on_ray for each in found]


if __name__ == "__main__":
    main()
