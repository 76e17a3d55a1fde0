"""What the refusal of an upload on a new connection costs a server, in CPU time.

A server process has the real listener, entrance and early refusal on uvloop, and is overloaded as
far as its counters say; it computes nothing, so all its CPU time is that of refusals. Clients in a
process of their own send uploads of 425 kB as the attack `overload` does at 20 times the capacity:
at a fixed rate, whatever the server does, each on a new connection that the server is to close.
Reported: CPU microseconds of the server and of the clients for each refusal, those of the server in
the kernel (proc(5)), turns in which the server waited, and milliseconds that refusals took.

CPU time also depends on what else the machine does. To compare two versions give `--old` the folder
of another checkout, which needs this file: windows alternate (old, new, then new, old), and the
ratio is the median over the pairs of new CPU time by old CPU time.
Run: python -m tests.bench.refused_uploads [--old FOLDER] [--pairs 8] [--rate 260] [--seconds 4]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from app.admission.counters import Counters
from app.connections.bare.silent_connections import SilentConnections
from app.connections.entrance import Entrance
from app.connections.guard import Guard
from app.connections.http1.bare_refusals import BareRefusals
from app.connections.limits import ConnectionLimits
from app.connections.listening import bind
from app.connections.phases import Timer
from app.processes.connection_balancer import ConnectionBalancer, SharedSocket
from app.processes.connection_counts import Alone
from app.processes.uvicorn_server import TURN
from models.settings import Settings
from tests.bench.refusal_path import overloaded
from tests.bench.subject import TICKS
from tests.chaos.attacks.impatient import Tally, one, slow_request
from tests.chaos.harness.attack import Target

DEADLINE_MS = 5000
HEADERS = [(b"date", b"Sun, 22 Nov 2026 12:00:00 GMT"), (b"server", b"darkroom")]
LEAD = 0.5
"""Seconds of each window before it is measured."""


async def _serve() -> None:
    decide = overloaded()
    guard = Guard(ConnectionLimits.of(Settings(), 1 << 14))
    guard.decide, guard.pressed = decide, lambda: True
    entrance = Entrance(guard, Counters())
    silent = SilentConnections(guard, set(), BareRefusals(guard, lambda: HEADERS))
    Timer(guard.sweep, TURN)
    (listening,) = bind("127.0.0.1", 0)

    def begun(_ticket: object) -> asyncio.Protocol:
        raise RuntimeError("a request was not refused")

    def waiting() -> int:
        return silent.arrivals.waiting

    begins = silent.enter, waiting, guard.pressed
    shared = SharedSocket(listening, Alone())
    ConnectionBalancer(shared, begun, waiting, entrance, None, 10.0, *begins)
    print(listening.getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def _arrivals(port: int, rate: float, seconds: float) -> tuple[Tally, float]:
    request = slow_request(1, f"X-Deadline-Ms: {DEADLINE_MS}\r\n")
    target = Target(port, 0)
    loop, tally, tasks = asyncio.get_running_loop(), Tally(), []
    begin, cpu = loop.time(), time.process_time()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begin + number / rate - loop.time()))
        tasks.append(asyncio.create_task(one(target, request, tally)))
    await asyncio.gather(*tasks)
    await asyncio.sleep(0.1)  # until the server has discarded what came
    return tally, time.process_time() - cpu


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of a process, those of them in the kernel, and how often it waited."""

    cpu: float
    kernel: float
    waits: int

    @classmethod
    def so_far(cls, pid: int) -> "Spent":
        """Read them."""
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return cls(cpu, int(stat[12]) / TICKS, int(status["voluntary_ctxt_switches"]))


@dataclass(frozen=True, slots=True)
class Window:
    """What one window gave; times of refusals in milliseconds."""

    refused: int
    others: dict[str, int]
    server_us: float
    kernel_us: float
    client_us: float
    waits: float
    refused_p50_ms: float
    refused_p99_ms: float


def window(server: "Server", rate: float, seconds: float) -> Window:
    """Measure one window."""
    asyncio.run(_arrivals(server.port, rate, LEAD))
    before = Spent.so_far(server.pid)
    tally, client = asyncio.run(_arrivals(server.port, rate, seconds))
    after = Spent.so_far(server.pid)
    refused = tally.statuses.pop("503", 0)
    return Window(
        refused,
        tally.statuses,
        round((after.cpu - before.cpu) / refused * 1e6, 1),
        round((after.kernel - before.kernel) / refused * 1e6, 1),
        round(client / refused * 1e6, 1),
        round((after.waits - before.waits) / refused, 3),
        round(tally.percentile(0.5) * 1e3, 2),
        round(tally.percentile(0.99) * 1e3, 2),
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A server process."""

    port: int
    pid: int


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Start the server of a checkout."""
    own = folder / ".venv/bin/python"
    words = [str(own if own.exists() else sys.executable), "-m", "tests.bench.refused_uploads"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(
        [*words, "--serve"], stdout=subprocess.PIPE, cwd=folder, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield Server(int(process.stdout.readline()), process.pid)
        finally:
            process.kill()


def run(folders: dict[str, Path], pairs: int, rate: float, seconds: float) -> dict[str, object]:
    """Measure the checkouts in turn."""
    found: dict[str, list[Window]] = {name: [] for name in folders}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(served(each)) for name, each in folders.items()}
        for number in range(pairs):
            for name in list(servers)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(window(servers[name], rate, seconds))
                print(name, asdict(found[name][-1]), file=sys.stderr)
    names = ("server_us", "kernel_us", "client_us", "waits", "refused_p50_ms", "refused_p99_ms")
    result: dict[str, object] = {
        name: {key: statistics.median(getattr(each, key) for each in windows) for key in names}
        for name, windows in found.items()
    }
    if "old" in found:
        for key in ("server_us", "client_us"):
            both = zip(found["new"], found["old"], strict=True)
            ratio = statistics.median(getattr(n, key) / getattr(o, key) for n, o in both)
            result[f"{key}_ratio"] = round(ratio, 3)
    return result


def main() -> None:
    """Compare, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=260.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve())
        return
    folders = {"old": given.old} if given.old else {}
    folders["new"] = Path.cwd()
    print(json.dumps(run(folders, given.pairs, given.rate, given.seconds)))


if __name__ == "__main__":
    main()
