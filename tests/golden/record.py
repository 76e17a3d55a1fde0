"""Record what a real server and the command line of this checkout answer, as JSON.

`python -m tests.golden.record FILE`; `python -m tests.golden.compare A B` shows the differences.
Timings, dates and ids of requests are left out. Micro-batches hold one image, so that labels do not
depend on how requests happen to meet.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.golden import endpoints
from tests.golden.commands import commands
from tests.golden.drawn import images
from tests.server import serving

SETTINGS = {
    "DARKROOM_WEIGHTS": "bundled",
    "DARKROOM_MAX_BATCH_SIZE": "1",
    "DARKROOM_LOG_LEVEL": "error",
    "DARKROOM_GPUS": "0",
    "DARKROOM_THREADS": "1",
    "DARKROOM_PRECISION": "fp32",
}


def main() -> int:
    """Write the record to the file that is the only argument."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.golden.record FILE", file=sys.stderr)
        return 2
    begin, drawn = time.monotonic(), images()
    found: dict[str, Any] = {}
    with (
        serving(environment=SETTINGS) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client,
    ):
        parts = (
            endpoints.pages(client),
            endpoints.labels(client, drawn),
            endpoints.filters(client, drawn),
            endpoints.encodings(client, drawn),
            endpoints.streams(client, drawn),
            endpoints.bodies(client, drawn),
            endpoints.refusals(client, drawn),
        )
        for part in parts:
            for name, answer in part:
                assert name not in found, name
                found[name] = answer
    found |= commands(drawn)
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False))
    print(f"{len(found)} answers in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
