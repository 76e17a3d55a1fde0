"""Record what a real server and the command line of this checkout answer, as JSON.

`python -m tests.golden.record FILE`; `python -m tests.golden.compare A B` shows the differences.
Timings, dates and ids of requests are left out. Micro-batches hold one image, so that labels do not
depend on how requests happen to meet.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.golden import endpoints
from tests.golden.commands import commands
from tests.golden.drawn import images
from tests.ports import free_port

SETTINGS = {
    "DARKROOM_WEIGHTS": "bundled",
    "DARKROOM_MAX_BATCH_SIZE": "1",
    "DARKROOM_LOG_LEVEL": "error",
    "DARKROOM_GPUS": "0",
    "DARKROOM_THREADS": "1",
    "DARKROOM_PRECISION": "fp32",
}

READY_WITHIN = 120.0
"""Seconds until the server has to be ready."""


def main() -> int:
    """Write the record to the file that is the only argument."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.golden.record FILE", file=sys.stderr)
        return 2
    begin, drawn = time.monotonic(), images()
    found: dict[str, Any] = {}
    with _serving() as client:
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


@contextmanager
def _serving() -> Iterator[httpx.Client]:
    """Start a server and yield its client; the server ends with the block."""
    port = free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=kept | SETTINGS)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            _wait(client, process)
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"the server is not ready after {READY_WITHIN:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
