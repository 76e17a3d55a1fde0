"""The last line of a benchmark: its result as JSON, with what somebody needs to repeat it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec


def report(benchmark: str, **found: object) -> None:
    """Print a result with the command, the date, the cores, the GPU and its libraries."""
    head = {
        "benchmark": benchmark,
        "command": shlex.join(["python", "-m", f"tests.bench.{benchmark}", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": gpu(),
        "stack": _libraries(),
    }
    given = {name: value for name, value in head.items() if value is not None}
    print(json.dumps(given | found))


def gpu() -> str | None:
    """Return the first GPU's name, its driver and its memory."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=30)
    return None if told.returncode else told.stdout.strip().partition("\n")[0]


def _libraries() -> dict[str, str | None] | None:
    """Return the versions of torch, of its CUDA, of CuPy, NVRTC and nvJPEG; None without CuPy."""
    if find_spec("cupy") is None:
        return None
    from workers.engines.cuda.kernels import versions

    return versions()
