"""A real `darkroom serve` process on a free port of 127.0.0.1, for tests and benchmarks."""

import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

PATIENCE = 280.0
"""Seconds after which a test stops waiting: a little less than the time limit of a test
(pyproject.toml), so that its error says what it waited for. No passing test depends on it."""


NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A context without authorities: httpx loads them for each client, which takes 24 ms of CPU."""

COLD = (sys.executable, "-m", "tests.cold")
"""The program of a server that does not warm up, for tests whose claim does not need that."""

FILTERS = {"TESTS_FILTERS_ONLY": "yes"}
"""The environment of a cold server without networks: PyTorch takes half of a start."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready."""

    port: int
    process: "subprocess.Popen[bytes]"


@contextmanager
def serving(
    *flags: str,
    ready_within: float = PATIENCE,
    tls: ssl.SSLContext | None = None,
    program: Sequence[str] = (sys.executable, "-m", "app.cli"),
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Served]:
    """Start a server by `program` in `folder`, wait until it is ready, and end it by SIGINT.

    `tls` trusts the server's certificate. `environment` is added to this process's own. What the
    server logs goes to the file `log`, or to this process's standard error.
    """
    port = free_port()
    command = [*program, "serve", "--port", str(port), *flags]
    variables = _variables(environment)
    with log.open("wb") if log else nullcontext() as written:
        process = subprocess.Popen(command, env=variables, cwd=folder, stderr=written)
    try:
        _wait_until_ready(port, process, ready_within, tls)
        yield Served(port, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def ran(
    *command: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    code: int = 0,
) -> "subprocess.CompletedProcess[str]":
    """Run a program, with the variables of a server, until it ends; check its exit code."""
    variables, limit = _variables(environment), PATIENCE
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=limit
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def get(url: str) -> httpx.Response:
    """Ask for a page on a new connection."""
    return httpx.get(url, timeout=PATIENCE, verify=NO_TLS)


def post(url: str, **body: Any) -> httpx.Response:
    """Send a body on a new connection, by the arguments of `httpx.post`."""
    return httpx.post(url, timeout=PATIENCE, verify=NO_TLS, **body)


def children(pid: int) -> dict[str, int]:
    """Return the process ids of a server's own processes, by their names."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid and {"app.processes.member", "tests.cold"} & {*words}:
                found[words[-1]] = int(folder.name)
    return found


def gone(pid: int) -> bool:
    """Return whether a process has ended; one that its parent has not waited for yet is a
    zombie.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(claim: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until the claim holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def _variables(more: Mapping[str, str] | None) -> Mapping[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    return {**inherited, **(more or {})}


def _wait_until_ready(
    port: int,
    process: "subprocess.Popen[bytes]",
    seconds: float,
    tls: ssl.SSLContext | None,
) -> None:
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/readyz"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5, context=tls):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise TimeoutError(f"not ready after {seconds} s")
