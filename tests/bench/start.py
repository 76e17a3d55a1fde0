"""CPU seconds that each command of the command line takes from its start to its end.

Method: every command runs `--runs` times in a process of its own, in turn with the others, in a
folder with one small photo. CPU time is user and system time of the process and its children, read
when it is reaped; the median counts. What is compared with a promise has its limit beside it.
Run: python -m tests.bench.start [--runs 7]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.pictures import jpeg

ROOT = Path(__file__).parents[2]

INVERT = '[{"name": "invert"}]'

COMMANDS: dict[str, tuple[Sequence[str], float | None]] = {
    "--version": (["--version"], 0.3),
    "--help": (["--help"], 0.3),
    "filters": (["filters"], 0.8),
    "filters gaussian_blur": (["filters", "gaussian_blur"], 0.8),
    "filter": (["filter", "a.jpg", "--ops", INVERT, "-o", "-", "--gpus", "0"], None),
    "classify": (["classify", "a.jpg", "--weights", "random", "--gpus", "0"], None),
}
"""Arguments, and the CPU seconds that are promised."""


def cpu_seconds(arguments: Sequence[str], folder: Path) -> float:
    """Return the CPU seconds of one run."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    known = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{known}" if known else str(ROOT)
    command = [sys.executable, "-m", "app.cli", *arguments]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jpg").write_bytes(jpeg())
        for arguments, _ in COMMANDS.values():
            cpu_seconds(arguments, Path(folder))  # the files of its imports are in memory then
        for _ in range(runs):
            for name, (arguments, _) in COMMANDS.items():
                found[name].append(cpu_seconds(arguments, Path(folder)))
    medians = {name: round(statistics.median(each), 3) for name, each in found.items()}
    for name, seconds in medians.items():
        limit = COMMANDS[name][1]
        shown = f" (at most {limit})" if limit else ""
        print(f"{name:24} {seconds:6.3f} s of CPU{shown}")
    broken = [n for n, s in medians.items() if (limit := COMMANDS[n][1]) and s > limit]
    print(
        json.dumps(
            {
                "benchmark": "start",
                "command": f"python -m tests.bench.start --runs {runs}",
                "runs": runs,
                "cpu_seconds": medians,
                "limits": {name: limit for name, (_, limit) in COMMANDS.items() if limit},
                "broken": broken,
            }
        )
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
