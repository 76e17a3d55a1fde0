"""What a refused request costs a busy server: CPU microseconds of the thread of its event loop.

Eight connections keep the server busy with a slow filter, so that a request with a short deadline
is refused. One client then sends such requests, one after the other, from prebuilt bytes over a
plain socket: first on one kept connection, then each on a new connection. Reported for both: how
many were refused, CPU microseconds of the server's main thread and of the client for each refusal
(from `schedstat`, proc(5)), and the main thread's share that the busy work itself takes, measured
while no refusals are asked for and subtracted. CPU time hardly depends on other programs.
Run: python -m tests.bench.refusals [--seconds 4] [--checkout FOLDER]
"""

import argparse
import json
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.subject import Subject, answers, started
from tests.bench.traffic import Request
from tests.pictures import jpeg
from tests.ports import free_port

BUSY = 8
"""Connections that keep the server busy."""

DEADLINE_MS = 60
"""Shorter than what is before the request."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way of asking cost."""

    refused: int
    others: dict[int, int]
    server_us_each: float
    client_us_each: float


def receive(connection: socket.socket) -> int:
    """Read one answer that gives its length; return its status."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed the connection")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(lines[b"content-length"]) - len(rest)
    while missing > 0:
        missing -= len(connection.recv(1 << 16))
    return int(head.split(b" ", 2)[1])


def connect(port: int) -> socket.socket:
    """Open a connection that sends at once."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def cpu_seconds(subject: Subject) -> float:
    """Return the CPU seconds of the server's main thread, on which its event loop runs."""
    pid = subject.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def keep_busy(port: int, request: bytes, stop: threading.Event) -> None:
    """Ask on one connection until told to stop."""
    with connect(port) as connection:
        while not stop.is_set():
            connection.sendall(request)
            if receive(connection) == 503:
                time.sleep(0.5)


def measure(subject: Subject, request: bytes, kept: bool, seconds: float) -> Cost:
    """Send requests one after the other; the busy work's own CPU time is measured before."""
    start, before = time.monotonic(), cpu_seconds(subject)
    time.sleep(seconds / 2)
    busy_share = (cpu_seconds(subject) - before) / (time.monotonic() - start)
    statuses = Counter[int]()
    connection = connect(subject.port)
    start, before, own = time.monotonic(), cpu_seconds(subject), time.thread_time()
    while time.monotonic() < start + seconds:
        if not kept:
            connection.close()
            connection = connect(subject.port)
        connection.sendall(request)
        statuses[receive(connection)] += 1
    own, lasted = time.thread_time() - own, time.monotonic() - start
    spent = cpu_seconds(subject) - before - busy_share * lasted
    connection.close()
    count = sum(statuses.values())
    refused = statuses.pop(503, 0)
    each = round(spent / count * 1e6, 1), round(own / count * 1e6, 1)
    return Cost(refused, dict(statuses), *each)


def run(subject: Subject, seconds: float) -> dict[str, object]:
    """Keep the server busy and measure both ways."""
    picture = jpeg(1, 120, 90)
    slow = Request("/filter?name=nl_means", picture)
    hasty = Request("/filter?name=nl_means", picture, DEADLINE_MS)
    stop = threading.Event()
    whole = slow.head() + slow.body
    busy = [
        threading.Thread(target=keep_busy, args=(subject.port, whole, stop)) for _ in range(BUSY)
    ]
    for each in busy:
        each.start()
    time.sleep(3)  # until its capacity has been measured
    request = hasty.head() + hasty.body
    try:
        found = {
            name: asdict(measure(subject, request, name == "kept", seconds))
            for name in ("kept", "new")
        }
    finally:
        stop.set()
        for each in busy:
            each.join()
    return {"connections": found}


def main() -> None:
    """Start a server, ask it for what it refuses, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way of asking")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--checkout", type=Path, help="measure the server of another checkout")
    given = parser.parse_args()
    port = free_port()
    python = str(given.checkout / ".venv/bin/python") if given.checkout else sys.executable
    command = [python, "-m", "app.cli", "serve", "--port", str(port), "--weights", "random"]
    command += ["--gpus", "0", "--front-ends", "0", "--log-level", given.log_level]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        place = given.checkout
        with started(command, port, log, answers("/readyz"), 180, folder=place) as subject:
            print(json.dumps(run(subject, given.seconds)))


if __name__ == "__main__":
    main()
