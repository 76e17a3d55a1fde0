"""Run Darkroom's Serve configuration on a Ray of this machine, as `serve run` does for a user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.ports import free_port
from tests.ray_cluster import ENVIRONMENT, ROOT

CONFIGURATION = ROOT / "docker/ray/serve.yaml"
START = 120.0
"""Seconds in which Serve must answer."""


def configuration(folder: Path, port: int, settings: Mapping[str, Any]) -> Path:
    """Write a copy of the configuration with another port and these settings of Darkroom."""
    found = yaml.safe_load(CONFIGURATION.read_text())
    found["http_options"]["port"] = port
    found["applications"][0]["args"] = dict(settings)
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(found))
    return path


@contextmanager
def serve_run(
    folder: Path, address: str, settings: Mapping[str, Any], site: Path | None = None
) -> Iterator[str]:
    """Run the configuration on the Ray at `address`, and yield the URL of the server.

    It runs in the repository, or with the packages in `site` in the folder, like an installed one.
    """
    port = free_port()
    path = configuration(folder, port, settings)
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(site or ROOT)}
    command = [str(Path(sys.executable).with_name("serve")), "run", str(path)]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--address", address],
            cwd=folder if site else ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, folder / "serve.log")
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    ends = time.monotonic() + START
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"it did not start: {log.read_text()[-3000:]}")
