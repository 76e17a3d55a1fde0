"""CPU seconds and seconds to compile the kernels: as one module, one by one, and in parallel.

Method: NVRTC compiles for one architecture, without a GPU, in a process of its own for each way.
`whole` is one module of all text, as until version 0.1.0; `split` the modules one after the other,
and `parallel` on one thread for each core; `loaded` is a start that finds all cubins in its folder.
CPU seconds are user and system time of the process from before the first to after the last module;
seconds depend on how many cores are free. Run: python -m tests.bench.kernels [--architecture 90]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from workers.engines.cuda.nvrtc import Nvrtc
from workers.kernels.compilation import compiled, options
from workers.kernels.cubins import CubinStore
from workers.kernels.loader import modules, source

WAYS = ("whole", "split", "parallel", "loaded")


def work(way: str, architecture: str, folder: Path) -> dict[str, float]:
    """Do one way in this process."""
    assert torch.__version__  # importing torch makes its NVRTC known to CuPy
    compiler, store = Nvrtc(), CubinStore([folder])
    started, cpu = time.monotonic(), time.process_time()
    longest = 0.0
    if way == "whole":
        compiler.compile(source(), "kernels.cu", options(architecture))
    elif way == "split":
        for each in modules():
            before = time.process_time()
            compiler.compile(each.text, each.name, options(architecture))
            longest = max(longest, time.process_time() - before)
    else:
        compiled(modules(), architecture, compiler, store)
    found = {
        "cpu_seconds": time.process_time() - cpu,
        "seconds": time.monotonic() - started,
        "longest_module_cpu_seconds": longest,
    }
    return {name: round(value, 3) for name, value in found.items() if value}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", default="90")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    architecture = f"sm_{given.architecture}"
    if given.way:
        print(json.dumps(work(given.way, architecture, given.folder)))
        return
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            command = [sys.executable, "-m", "tests.bench.kernels", "--way", way]
            command += ["--architecture", given.architecture, "--folder", folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows[way] = json.loads(done.stdout.splitlines()[-1])
            print(f"{way:9} {rows[way]}")
    print(
        json.dumps(
            {
                "benchmark": "kernels",
                "command": f"python -m tests.bench.kernels --architecture {given.architecture}",
                "cores": len(os.sched_getaffinity(0)),
                "compiler": Nvrtc().version,
                "modules": len(modules()),
                "characters": len(source()),
                "ways": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
