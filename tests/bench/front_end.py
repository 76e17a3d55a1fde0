"""What one image costs a front end: HTTP, looking at the JPEG, the arena, the record.

Method. Three processes: a worker whose engine answers at once with five labels, one front end, and
the load, a closed loop of raw bodies over 64 connections, then of multipart bodies of 16 over 8.
Images are photos re-encoded at quality 90 with 4:2:0 chroma, which the front end sends on as they
are. CPU seconds of the front end, from /proc, by images answered in five seconds, after one to warm
up. On a machine with few cores the other processes slow it down: compare in one run.

Run: python -m tests.bench.front_end
"""

import json
import os
import secrets
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from app.main import create_app
from app.processes import uvicorn_server
from app.telemetry import structured_logging
from models.api.schemas import ModelRecord
from models.domain.job import Labels
from models.settings import Settings
from tests.bench import load
from tests.bench.images import jpegs, subsampled
from tests.bench.plan import BOUNDARY, multipart
from tests.bench.subject import TICKS, answers
from tests.fakes import FakeEngine
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

SECONDS = 5.0
IMAGES = 64
EACH = 16
CLASSES = 1000
MODEL = ModelRecord(
    name="fake",
    sha256="0" * 64,
    label_set="fake",
    n_classes=CLASSES,
    random=True,
    preprocessing=1,
    precision="fp16",
    device="fake",
)


def worker(listener: socket.socket) -> None:
    """Answer at once, for ever."""
    found = Labels(tuple(range(5)), (0.5, 0.2, 0.1, 0.05, 0.01))
    labels = ("fake", [f"label {n}" for n in range(CLASSES)], [None] * CLASSES)

    async def serve() -> None:
        engine = FakeEngine(slots=3, answer=lambda job: found, takes_jpegs=True)
        made = Worker(engine, BatchLimits(64, 1 << 40))
        made.start()
        welcome = Welcome("fake", MODEL.model_dump(), labels, None, takes_jpegs=True)
        await WorkerServer().serve(listener, made, welcome)

    uvloop.run(serve())


def front_end(listening: socket.socket, address: str) -> None:
    """One of several, if there were more."""
    structured_logging.configure("warning")
    settings = Settings()
    uvicorn_server.Server(create_app(settings, [address]), settings).run([listening])


def cpu_seconds(pid: int) -> float:
    """So far."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def measured(port: int, pid: int, requests: list[bytes], each: int) -> dict[str, float]:
    """One form of bodies."""
    connections = 8 if each > 1 else 64
    load.run(port, requests, connections, 1.0)
    before = cpu_seconds(pid)
    report = load.run(port, requests, connections, SECONDS)
    used, images = cpu_seconds(pid) - before, each * report.requests
    return {
        "images_per_second": round(images / SECONDS, 1),
        "front_end_us_per_image": round(used / images * 1e6, 1),
        "failures": report.failures,
    }


def started(work: Callable[[], None]) -> int:
    """The id of a new process that does it."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def main() -> None:
    """The command line."""
    source, photos = jpegs(IMAGES)
    files = [subsampled(photo) for photo in photos]
    raw = [load.raw_post("/classify", file, "image/jpeg") for file in files]
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    bodies = [multipart(files[n : n + EACH]) for n in range(0, len(files) - EACH + 1, EACH)]
    forms = [load.raw_post("/classify", body, kind) for body in bodies]
    address = f"\0darkroom-bench-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as tcp:
        unix.bind(address)
        unix.listen()
        port = tcp.getsockname()[1]
        children = [started(lambda: worker(unix)), started(lambda: front_end(tcp, address))]
        try:
            while not answers("/readyz")(port, Path(os.devnull)):
                pass
            found = {
                "raw": measured(port, children[1], raw, 1),
                "multipart": measured(port, children[1], forms, EACH),
            }
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    report = {
        "benchmark": "front_end",
        "command": "python -m tests.bench.front_end",
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "images": source,
    }
    print(json.dumps(report | found))


if __name__ == "__main__":
    main()
