"""What a front end costs: the CPU time of a labelled photo beside fetching and computing.

Method. A front end of one process runs on a backend that answers each job at once and takes JPEGs
as they are, as a GPU does: sockets, HTTP, admission, reading the JPEG's markers, the answer and the
metrics remain. Not measured are messages to a worker in another process. wrk sends photos over
eight connections, raw and in forms of 16, without metadata; and raw with the EXIF, profiles and
further metadata that they came with. What counts is the median of five runs of the user and
system time of the process. The same core takes up to twice as long for the same work while its
other hyperthread is busy.

Run: python -m tests.bench.front_end [--seconds 4] [--wrk PATH]
"""

import argparse
import asyncio
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from app import main as server
from app.admission.counters import Counters
from app.connections.listening import bind
from app.processes import uvicorn_server
from app.telemetry.metrics import Metrics
from models import codec
from models.domain.backend import Load
from models.domain.job import Completed, Job, Labels, ReleaseReason, Trace
from models.settings import Settings
from tests.bench import checkouts, wrk
from tests.bench.images import jpegs
from tests.bench.load import raw_post
from tests.bench.report import report
from tests.bench.subject import answers, started
from tests.ports import free_port

CONNECTIONS, RUNS, MAX_PIXELS = 8, 5, 50_000_000


class Immediate:
    """A backend that answers with the same label in the next turn of the event loop."""

    async def run(self, job: Job) -> Completed:  # noqa: ARG002 (the protocol's name)
        await asyncio.sleep(0)
        trace = Trace(0.001, 0.001, 0.001, 0.001, 0.001, 8, 64, ReleaseReason.IDLE)
        return Completed(Labels((3,), (0.5,)), trace)

    def load(self) -> Load:
        return Load("cuda:0", 0, 0, 20_000.0, True, takes_jpegs=True)

    async def aclose(self) -> None: ...


async def connect(settings: Settings, metrics: Metrics, counters: Counters) -> server.Executor:
    """Load the networks, whose classes answers name, but leave them idle."""
    local = await server.local_executor(settings, metrics, counters)
    return replace(local, backend=Immediate(), is_here=False)


def serve(port: int) -> int:
    """Run the front end until it is stopped."""
    given = {"port": port, "gpus": "0", "weights": "bundled", "log_level": "error"}
    settings = Settings.model_validate(given)
    app = server.create_app(settings, connect, private=True)  # the canary would ask for pixels
    running = uvicorn_server.Server(app, settings, warms_up=False)
    return uvicorn_server.run(running, [bind(settings.host, port)])


def measured(program: str, seconds: float) -> dict[str, float]:
    """Return the milliseconds of CPU time of an image, by kind of request."""
    port, found = free_port(), {}
    command = [sys.executable, "-m", "tests.bench.front_end", "--serve", str(port)]
    with TemporaryDirectory() as folder:
        requests, log = Path(folder) / "requests", Path(folder) / "log"
        with started(command, port, log, answers("/livez"), 60) as subject:
            photos = jpegs(96)[1]
            _, raw, multipart, *_ = checkouts.kinds(len(photos))
            taken = [each for each in photos if codec.encoded(each, max_pixels=MAX_PIXELS)]
            whole = checkouts.Kind(
                "described", [raw_post(checkouts.CLASSIFY, each) for each in taken]
            )
            for kind in (raw, multipart, whole):
                wrk.write_requests(requests, kind.requests)
                wrk.run(program, port, requests, CONNECTIONS, 1)
                times = []
                for _ in range(RUNS):
                    before = subject.all_cpu_seconds()
                    ran = wrk.run(program, port, requests, CONNECTIONS, seconds)
                    if ran.errors:
                        raise RuntimeError(f"{kind.name}: {ran}")
                    used = subject.all_cpu_seconds() - before
                    times.append(used * 1e3 / (ran.requests * kind.images))
                found[f"{kind.name}_ms"] = round(statistics.median(times), 3)
    return found


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=4.0)
    arguments.add_argument("--wrk", help="wrk's path, if it is not on the PATH")
    arguments.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.serve:
        sys.exit(serve(options.serve))
    report("front_end", **measured(wrk.find(options.wrk), options.seconds))


if __name__ == "__main__":
    main()
