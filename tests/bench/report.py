"""The last line of a benchmark: its result as JSON, with what somebody needs to repeat it."""

import json
import os
import shlex
import sys
from datetime import UTC, datetime

from tests.bench.gpu_samples import cuda_stack, describe


def report(benchmark: str, **found: object) -> None:
    """Print a result with the command, the date, the cores, the GPU and its libraries."""
    head = {
        "benchmark": benchmark,
        "command": shlex.join(["python", "-m", f"tests.bench.{benchmark}", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": describe(),
        "stack": cuda_stack(),
    }
    given = {name: value for name, value in head.items() if value is not None}
    print(json.dumps(given | found))
