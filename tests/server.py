"""A real `darkroom serve` process on a free port of 127.0.0.1, for tests and benchmarks."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """A ready server."""

    port: int
    process: "subprocess.Popen[bytes]"


@contextmanager
def serving(*flags: str, ready_within: float = 120.0) -> Iterator[Served]:
    """A ready server, ended by SIGINT when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), *flags]
    process = subprocess.Popen(command, env=environment)
    try:
        _wait_until_ready(port, process, ready_within)
        yield Served(port, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]", seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(f"not ready after {seconds} s")
