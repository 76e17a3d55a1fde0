"""The servers that `two_gpus` compares: on which CPUs and GPUs each of them runs."""

import http.client
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from models.usable_cpus import usable_cpus
from tests.bench import thread_use, wrk
from tests.bench.subject import Subject, answers, started
from tests.ports import free_port

Cpus = frozenset[int]

FLAGS = ["--log-level", "warning", "--max-images-in-flight", "16384"]

FIRST = 8
"""Requests that are timed before the warm-up."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server to start: its CPUs, the GPUs that it sees, and its flags."""

    cpus: Cpus
    gpus: tuple[int, ...]
    flags: list[str]

    @property
    def on(self) -> list[str]:
        """Return the command that lets a program run on these CPUs."""
        return ["taskset", "-c", ",".join(map(str, sorted(self.cpus)))]

    @contextmanager
    def run(self, log: Path) -> Iterator[Subject]:
        """Run it, with all workers ready, until the block ends."""
        port = free_port()
        command = [*self.on, sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))} if self.gpus else None
        with started([*command, *self.flags], port, log, answers("/readyz"), 90, visible) as it:
            _wait_for_workers(it.process.pid)
            yield it


def shares_of(gpus: int) -> list[Cpus]:
    """Return two halves of the CPUs in the order of their numbers, one for each GPU."""
    cpus = sorted(usable_cpus())
    if gpus == 1 or len(cpus) < 2:
        raise SystemExit(f"{gpus} GPUs and {len(cpus)} CPUs: this needs two of each")
    half = len(cpus) // 2
    return [frozenset(cpus[:half]), frozenset(cpus[half : 2 * half])]


def setups_of(
    names: list[str], variants: list[str], darkroom: str, gpus: int
) -> dict[str, list[Server]]:
    """Return the servers of each setup; `variants` and `darkroom` are flags as a shell reads them.

    A variant is the name of a setup and further flags for its servers: `two --gpu-workers 3`.
    """
    flags = [*FLAGS, *shlex.split(darkroom)]
    if not gpus:
        flags += ["--gpus", "0", "--weights", "bundled"]
    shares = shares_of(gpus)
    own = [(0,), (1,)] if gpus else [(), ()]
    every, all_gpus = shares[0] | shares[1], own[0] + own[1]
    found = {
        "one": [Server(shares[0], own[0], flags)],
        "beside": [Server(shares[0], own[0], flags)],
        "two": [Server(every, all_gpus, flags)],
        "apart": [Server(cpus, gpu, flags) for cpus, gpu in zip(shares, own, strict=True)],
    }
    setups = {name: found[name] for name in names}
    for variant in variants:
        name, _, more = variant.partition(" ")
        own_flags = [*flags, *shlex.split(more)]
        setups[variant.strip()] = [replace(each, flags=own_flags) for each in found[name]]
    return setups


def first_requests(port: int, requests: Path) -> list[float]:
    """Return the milliseconds of the first requests, each on a connection of its own."""
    found = []
    for request in wrk.read_requests(requests)[:FIRST]:
        head, _, body = request.partition(b"\r\n\r\n")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        start = time.perf_counter()
        client.request("POST", head.split()[1].decode(), body, {"Content-Type": "image/jpeg"})
        client.getresponse().read()
        found.append(round((time.perf_counter() - start) * 1e3, 1))
        client.close()
    return found


def _wait_for_workers(pid: int, patience: float = 60) -> None:
    """Wait until every worker listens at its abstract address."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        roles = {(each.role, each.process) for each in thread_use.sample(pid).values()}
        wanted = sum(role.startswith("worker") for role, _ in roles)
        try:
            lines = Path("/proc/net/unix").read_text().splitlines()
        except OSError:  # a sandbox without this file
            time.sleep(10)
            return
        names = {line.split()[-1] for line in lines if f"@darkroom-{pid}-" in line}
        if len(names) >= wanted:
            return
        time.sleep(0.2)
    raise TimeoutError(f"not all workers were ready after {patience} s more")
