"""A worker behind Ray Serve against the same worker in this process: throughput.

Method. One worker on one core (`--threads 1`, ResNet18 in fp32) is a replica of Ray Serve, another
one of the same settings is in threads of this process, and both are asked through their backends.
Photos of 500 × 375 are given as JPEGs, which both workers decode. Requests of 16 images are sent by
four clients, in windows that alternate between the two, so that both see the same machine. `ratio`
is that of the medians. `ratio_by_cpu` divides the CPU time of an image here by that of the
replica's process: it is the ratio of the rates where each worker has a core for itself, which a
machine with a higher `load` (load average) than cores does not give. Ray's workers have the same
priority here as this process (`RAY_worker_niceness=0`; by default Ray sets 15), and this process
and the replica have the event loops of the application (`ONE_LOOP`).

Run: python -m tests.bench.ray_serve [--windows 5] [--seconds 4]
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.cluster import ONE_LOOP
from models import codec
from models.domain.backend import Backend
from models.domain.image import Jpeg
from models.domain.job import Job, Operation
from models.settings import Settings
from tests.bench.report import report
from tests.bench.subject import TICKS
from tests.chaos.harness.processes import tree
from tests.pictures import drawing, encoded
from tests.ray_cluster import running_ray
from workers.backends.in_process import LocalBackend
from workers.cluster import RayBackend
from workers.operations import Classify
from workers.supervision.startup import start_worker

SETTINGS = {"weights": "random", "precision": "fp32", "threads": 1, "gpus": "0"}
IMAGES = 16
CLIENTS = 4
PHOTOS = 32


def photos() -> list[Jpeg]:
    """Return drawings as a front end hands them over: whole baseline JPEGs."""
    files = [encoded(drawing(500, 375, n), quality=92) for n in range(PHOTOS)]
    found = [codec.encoded(each, max_pixels=1 << 20) for each in files]
    return [each.image for each in found if each and isinstance(each.image, Jpeg)]


async def rate(
    backend: Backend, jobs: Sequence[Job], images: int, clients: int, seconds: float
) -> tuple[float, int]:
    """Return the images a second of clients that send requests for some seconds, and how many."""
    ends, done = time.perf_counter() + seconds, 0

    async def client(first: int) -> None:
        nonlocal done
        at = first
        while time.perf_counter() < ends:
            request = [jobs[(at + n) % len(jobs)] for n in range(images)]
            await asyncio.gather(*(backend.run(each) for each in request))
            done += images
            at += images

    began = time.perf_counter()
    await asyncio.gather(*(client(n * images) for n in range(clients)))
    return done / (time.perf_counter() - began), done


def cpu_of_replicas() -> float:
    """Return the CPU seconds of the replicas below this process (proc(5))."""
    spent = 0.0
    for pid in tree(os.getpid()):
        with suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::ServeReplica"):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                spent += (int(fields[11]) + int(fields[12])) / TICKS
    return spent


async def compared(handle: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Return rates and latencies of the replica and of the worker here."""
    started = await asyncio.to_thread(
        start_worker, Settings.of(SETTINGS, None), lambda _batch, _result: None
    )
    here, ray = LocalBackend(started.worker), RayBackend(handle)
    operation: Operation = Classify(top_k=1)
    jobs = [Job(operation, each) for each in photos()]
    for backend in (here, ray):
        await rate(backend, jobs, IMAGES, 1, 1.0)
    rates: dict[str, list[float]] = {"here": [], "ray": []}
    spent: dict[str, float] = {"here": 0.0, "ray_replica": 0.0, "ray_front_end": 0.0}
    done = {"here": 0, "ray": 0}
    for _ in range(given.windows):
        for name, backend in (("here", here), ("ray", ray)):
            before = time.process_time(), cpu_of_replicas()
            per_second, images = await rate(backend, jobs, IMAGES, CLIENTS, given.seconds)
            rates[name].append(per_second)
            own, other = time.process_time() - before[0], cpu_of_replicas() - before[1]
            spent["here" if backend is here else "ray_front_end"] += own
            spent["ray_replica"] += other if backend is ray else 0.0
            done[name] += images
    await ray.aclose()
    await here.aclose()
    cpu = {name: each * 1e3 / done[name.split("_")[0]] for name, each in spent.items()}
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {
        "images_per_second": {name: [round(x, 2) for x in each] for name, each in rates.items()},
        "ratio": round(medians["ray"] / medians["here"], 3),
        "cpu_ms_per_image": {name: round(each, 2) for name, each in cpu.items()},
        "ratio_by_cpu": round(cpu["here"] / cpu["ray_replica"], 3),
    }


async def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Deploy the replica; what blocks runs in threads, because Ray's router needs this loop all the
    time.
    """
    from ray import serve

    from darkroom.cluster import Workers

    serve.start(proxy_location="Disabled")
    common: dict[str, Any] = {
        "logging_config": {"enable_access_log": False},
        "ray_actor_options": {"runtime_env": {"env_vars": ONE_LOOP}},
    }
    deployed: Any = serve.deployment(Workers)
    workers = deployed.options(max_ongoing_requests=32, **common).bind(
        Settings.of(SETTINGS, None).model_dump(mode="json")
    )
    handle = await asyncio.to_thread(serve.run, workers, name="a", route_prefix=None)
    found = await compared(handle, given)
    return found


def main() -> None:
    """Measure; print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's name)
    os.environ |= ONE_LOOP  # before Ray is imported, as in the processes of front ends
    with asyncio.Runner() as runner, running_ray(cpus=4):
        found = runner.run(measured(given))  # the loop is still open when Serve ends
    size = sum(each.data.size for each in photos()) // PHOTOS
    report("ray_serve", bytes=size, load=[round(each, 1) for each in os.getloadavg()], **found)


if __name__ == "__main__":
    main()
