"""From the start of `darkroom serve` to ready: CPU seconds of all its processes, and seconds.

Method: a server with the bundled weights is started `--starts` times with the same cache folder,
which is empty before the first start; `/readyz` is asked every 0.2 s. When it answers 200, the CPU
time (user and system) of every process of the server is read from /proc, and the server is ended.
Seconds depend on how many cores are free; CPU seconds much less. What follows `--` goes to
`darkroom serve`. Run: python -m tests.bench.ready [--starts 3] [-- --front-ends 2 --gpus 0]
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.bench.subject import answers, started
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE = 600.0


def one_start(flags: list[str], folder: Path) -> dict[str, object]:
    """Start a server, wait until it is ready, and read what that cost."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
    command += ["--weights", "bundled", "--grace", "0", *flags]
    known = os.environ.get("PYTHONPATH")
    environment = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{known}" if known else str(ROOT),
        "XDG_CACHE_HOME": str(folder),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
        "CUDA_CACHE_PATH": str(folder / "driver"),
    }
    log = folder / "log"
    with started(command, port, log, answers("/readyz"), PATIENCE, environment) as subject:
        by_process = subject.cpu_seconds().values()
        return {
            "seconds": subject.seconds_to_ready,
            "cpu_seconds": round(sum(seconds for _, seconds in by_process), 2),
            "by_process": sorted((role, round(seconds, 2)) for role, seconds in by_process),
        }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    starts = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.starts):
            starts.append(one_start(given.flags, Path(folder)))
            print(f"start {number + 1}: {starts[-1]}", flush=True)
    words = ["python -m tests.bench.ready", f"--starts {given.starts}", "--", *given.flags]
    print(
        json.dumps(
            {
                "benchmark": "ready",
                "command": " ".join(words),
                "cores": len(os.sched_getaffinity(0)),
                "starts": starts,
            }
        )
    )


if __name__ == "__main__":
    main()
