"""CPU time that one image costs a front end: HTTP, the header of the JPEG, the arena, the record.

Method. Three processes: a worker whose engine answers at once with five labels, one front end, and
the load, a closed loop that sends raw bodies over 64 connections, then forms of 16 images over 8.
The images are photos re-encoded at quality 90 with 4:2:0 chroma, which the front end sends on
without decoding them. The result is CPU seconds of the front end divided by the images answered.

CPU time also depends on what else the machine does. To compare two versions give `--old` the folder
of another checkout: its front end and worker run beside these, only one of them is under load at a
time, and windows of `--count` images alternate (old, new, then new, old). The ratio is the median
over the pairs of new CPU time by old CPU time: a slow moment of the machine falls on both halves.
On a busy machine the ratio of both lowest tenths is steadier: other programs only ever add time.

With `--front-ends N` the front end counts as one of N that share their counts and metrics in memory
and files, as those of a server do. It is the only one under load, so it may have an Nth of the work
past its line, and more of its images wait there. A checkout from before needs this file in place of
its own.

Run: python -m tests.bench.front_end [--old FOLDER] [--pairs 15] [--count 640] [--front-ends 1]
"""

import argparse
import asyncio
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import uvloop

from app.admission.counters import Counters
from app.main import Workers, create_app
from app.processes import uvicorn_server
from app.system.process_family import own_folder
from app.telemetry import logs
from app.telemetry.metrics import FOLDER_PREFIX, METRICS_FOLDER
from models.domain.image import Image
from models.domain.job import Job, Labels
from models.settings import Settings
from tests.bench import load
from tests.bench.images import jpegs, subsampled
from tests.bench.report import report
from tests.bench.subject import answers
from tests.fakes import FakeEngine, fake_network
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.operations import Classify
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

ROOT = Path(__file__).resolve().parents[2]

WARM_UP = 640
"""Images before the first window."""

IMAGES = 64
EACH = 16
CLASSES = 1000


def worker(listener: socket.socket) -> None:
    """Answer at once, until the process is killed."""
    found = Labels(tuple(range(5)), (0.5, 0.2, 0.1, 0.05, 0.01))
    filtered = Image(np.zeros((1, 1, 3), np.uint8))
    labels = [f"label {n}" for n in range(CLASSES)]
    network = fake_network(*labels, network="resnet18", sha256="0" * 64, precision="fp16")

    def answer(job: Job) -> Labels | Image:
        """Answer the filters too that a front end asks for before it is ready."""
        return found if isinstance(job.operation, Classify) else filtered

    async def serve() -> None:
        engine = FakeEngine(slots=3, answer=answer, takes_jpegs=True)
        made = Worker(engine, BatchLimits(64, 1 << 40))
        made.start()
        await WorkerServer().serve(listener, made, Welcome("fake", (network,)))

    uvloop.run(serve())


def front_end(listening: socket.socket, address: str, front_ends: int) -> None:
    """Serve as a front end with one worker, which shares its counts as one of `front_ends`."""
    logs.configure("warning")
    settings, counters = Settings(), Counters()
    if front_ends > 1:
        counters = Counters.attach(Counters.create(front_ends).fd or 0, front_ends)
    app = create_app(settings, Workers([address]), counters)
    uvicorn_server.Server(app, settings).run([listening])


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """A front end that serves at `port`, and its process."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all threads of the process since its start."""
        return time.clock_gettime((~self.pid << 3) | 2)  # as clock_getcpuclockid(3) numbers it

    def measured(self, kind: "Load", count: int) -> float:
        """Return the CPU microseconds of the front end for each of `count` images."""
        n_requests = count // kind.images
        before = self.cpu_seconds()
        sending = load.send(self.port, kind.requests, kind.connections, n_requests)
        if failures := asyncio.run(sending):
            raise RuntimeError(f"{failures} of {n_requests} requests failed")
        return (self.cpu_seconds() - before) / (n_requests * kind.images) * 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of `images` images each, sent over `connections` connections."""

    requests: list[bytes]
    images: int
    connections: int


@contextmanager
def started(checkout: Path, front_ends: int = 1) -> Iterator[FrontEnd]:
    """Start a worker and a front end of a checkout; both are killed when the block ends."""
    address = f"\0darkroom-bench-{secrets.token_hex(8)}"
    with (
        own_folder(FOLDER_PREFIX) as metrics,
        socket.socket(socket.AF_UNIX) as unix,
        socket.create_server(("127.0.0.1", 0), backlog=4096) as tcp,
    ):
        unix.bind(address)
        unix.listen()
        served = f"worker(socket.socket(fileno={unix.fileno()}))"
        fronted = f"front_end(socket.socket(fileno={tcp.fileno()}), {address!r}, {front_ends})"
        children = []
        try:
            for call, end in ((served, unix), (fronted, tcp)):
                code = f"import socket; from tests.bench.front_end import *; {call}"
                children.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-c", code],
                        env=os.environ
                        | {"PYTHONPATH": str(checkout)}
                        | ({METRICS_FOLDER: metrics} if front_ends > 1 else {}),
                        cwd=checkout,
                        pass_fds=[end.fileno()],
                    )
                )
            port = tcp.getsockname()[1]
            while not answers("/readyz")(port, Path(os.devnull)):
                time.sleep(0.05)
            yield FrontEnd(port, children[1].pid)
        finally:
            for child in children:
                child.send_signal(signal.SIGKILL)
                child.wait()


def loads() -> tuple[str, dict[str, Load]]:
    """Return the source of the images, and both kinds of load."""
    source, photos = jpegs(IMAGES)
    files = [subsampled(photo) for photo in photos]
    raw = [load.raw_post("/classify", file) for file in files]
    forms = load.forms("/classify", files, EACH)
    return source, {"raw": Load(raw, 1, 64), "multipart": Load(forms, EACH, 8)}


def compared(old: FrontEnd, new: FrontEnd, kind: Load, pairs: int, count: int) -> object:
    """Return the microseconds an image of both, and the median and quartiles of their ratios."""
    found = []
    for number in range(pairs):
        order = (old, new) if number % 2 == 0 else (new, old)
        values = {each.port: each.measured(kind, count) for each in order}
        found.append((values[old.port], values[new.port]))
    ratios = [after / before for before, after in found]
    return {
        "old_us_per_image": round(statistics.median(before for before, _ in found), 1),
        "new_us_per_image": round(statistics.median(after for _, after in found), 1),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_quartiles": [round(each, 3) for each in statistics.quantiles(ratios, n=4)],
        "ratio_of_best_tenths": round(
            _best(after for _, after in found) / _best(before for before, _ in found), 3
        ),
    }


def _best(values: Iterable[float]) -> float:
    """Return the tenth of the windows in which other programs disturbed least."""
    return statistics.quantiles(values, n=10)[0]


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--old", type=Path, help="the checkout to compare with")
    arguments.add_argument("--pairs", type=int, default=15)
    arguments.add_argument("--count", type=int, default=640, help="images of each window")
    arguments.add_argument("--front-ends", type=int, default=1)
    return arguments.parse_args()


def main() -> None:
    """Run the command line."""
    options = _arguments()
    source, kinds = loads()
    found: dict[str, object] = {}
    with ExitStack() as stack:
        new = stack.enter_context(started(ROOT, options.front_ends))
        old = None
        if options.old:
            old = stack.enter_context(started(options.old.resolve(), options.front_ends))
        for name, kind in kinds.items():
            for each in filter(None, (new, old)):
                each.measured(kind, WARM_UP)
            if old is None:
                values = [new.measured(kind, options.count) for _ in range(options.pairs)]
                found[name] = {"us_per_image": round(statistics.median(values), 1)}
            else:
                found[name] = compared(old, new, kind, options.pairs, options.count)
    report("front_end", images=source, **found)


if __name__ == "__main__":
    main()
