"""Darkroom on two GPUs of one host, against one GPU with half of the cores.

Method. The CPUs of this process are divided between the GPUs in two halves. Setups are
measured one after the other, each freshly started. `one` is a server on the first GPU with its half
of the CPUs, `beside` is the same while programs compute on the other half, `two` is one server on
both GPUs with all CPUs, and `apart` is two servers of one GPU each on its half of the CPUs, side by
side, which is the most that the host can do. `--variant 'two --gpu-workers 3'` is a setup with
further flags, with the last number of connections alone. wrk is the load, on the CPUs of the server
that it loads, four threads for each GPU; in `apart` each server has a wrk of its own with half of
the connections. Photos are encoded again with 4:2:0 chroma at quality 90. A `raw` request is one
photo to be labelled, `multipart` is a form of 16 with an eighth of the connections, and
`blurred_by_gpu` asks for a blurred JPEG that the GPU has encoded. Before a
setup is measured all its workers have opened their address, eight requests with `encoder=gpu` were
timed one after the other (`first_ms`), and a warm-up of all forms has passed. A status that is not
200, a failed image, a broken connection and an answer later than ten seconds are errors. `host` is
how much more Python and memory copies all CPUs do than half of them, without a server
(host_scaling.py).

Each point has the CPU time of each thread (thread_use.py), of wrk, and what the GPUs did
(gpu_samples.py). Ratios are those of setups at the same form and connections, and of their best
points. Without GPUs the same setups run on the CPU, to try the benchmark itself.

Run: python -m tests.bench.two_gpus [--seconds 4] [--connections 256 768] [--setups one two apart]
[--forms raw multipart blurred_by_gpu] [--variant 'NAME FLAGS' ...] [--limit SECONDS]
[--notes FILE] [--photos FOLDER]
"""

import argparse
import json
import os
import resource
import shlex
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import gpu_samples, thread_use, wrk
from tests.bench.gpu_setups import Server, first_requests, setups_of, shares_of
from tests.bench.host_scaling import busy, scaling
from tests.bench.images import jpegs, subsampled
from tests.bench.plan import BLURRED, IMAGES_PER_MULTIPART, LABELS, multipart_requests, raw_requests
from tests.bench.server_batches import Batches
from tests.bench.subject import Subject
from workers.supervision.gpu_discovery import count_gpus

NEEDED = 40
"""Seconds without which no further setup is begun."""
EACH = {"raw": 1, "multipart": IMAGES_PER_MULTIPART, "blurred": 1, "blurred_by_gpu": 1}
"""Images of a request of each form; connections are divided by it, a form of 16 by 8."""

Found = dict[str, Any]


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=4)
    arguments.add_argument("--connections", type=int, nargs="+", default=[256, 768])
    arguments.add_argument("--setups", nargs="+", default=["one", "two", "apart"])
    arguments.add_argument("--forms", nargs="+", choices=EACH)
    arguments.add_argument("--variant", action="append", default=[], help="a setup and flags")
    arguments.add_argument("--warm-up", type=float, default=2, help="seconds of each form")
    arguments.add_argument("--darkroom", default="", help="more flags for every server")
    arguments.add_argument("--limit", type=float, default=600, help="seconds for the whole run")
    arguments.add_argument("--notes", type=Path, help="a file for what is known so far")
    arguments.add_argument("--photos", type=Path, help="a folder of JPEGs")
    arguments.add_argument("--wrk", help="wrk's path, if it is not on the PATH")
    return arguments.parse_args()


def _measured(
    options: argparse.Namespace,
    servers: list[Server],
    forms: list[str],
    connections: list[int],
    folder: Path,
) -> Found:
    with ExitStack() as stack:
        logs = [folder / f"server-{time.monotonic_ns()}.log" for _ in servers]
        subjects = [
            stack.enter_context(each.run(log)) for each, log in zip(servers, logs, strict=True)
        ]
        blurring = folder / f"{forms[-1]}.requests"
        found: Found = {
            "cpus": [len(each.cpus) for each in servers],
            "seconds_to_ready": [each.seconds_to_ready for each in subjects],
            "first_ms": [first_requests(each.port, blurring) for each in subjects],
        }
        most = max(connections)
        for form in forms:
            _point(options.wrk, servers, subjects, form, most, options.warm_up, folder)
        for form in forms:
            found[form] = {}
            for n in connections:
                point = _point(options.wrk, servers, subjects, form, n, options.seconds, folder)
                found[form][str(n)] = point
                print(f"  {form}, {n}: {_line(point)}", flush=True)
        found["log"] = "".join(log.read_text(errors="replace")[-600:] for log in logs)
    return found


def _point(
    program: str,
    servers: list[Server],
    subjects: list[Subject],
    form: str,
    connections: int,
    seconds: float,
    folder: Path,
) -> Found:
    """Load all servers at once, and return what was seen of them together."""
    each = connections // (8 if EACH[form] > 1 else 1) // len(servers)

    def load(number: int) -> wrk.Report:
        server, port = servers[number], subjects[number].port
        threads = 4 * max(1, len(server.gpus))
        requests = folder / f"{form}.requests"
        return wrk.run(program, port, requests, each, seconds, threads, server.on)

    batches = [Batches.of(each.port) for each in subjects]
    befores = [thread_use.sample(each.process.pid) for each in subjects]
    own, start = _children(), time.monotonic()
    with gpu_samples.GpuSamples() as gpu, ThreadPoolExecutor() as threads:
        reports = list(threads.map(load, range(len(servers))))
    span = time.monotonic() - start
    afters = [thread_use.sample(each.process.pid) for each in subjects]
    return {
        "images_per_second": round(sum(r.per_second for r in reports) * EACH[form], 1),
        "p50_ms": max(report.p50_ms for report in reports),
        "p99_ms": max(report.p99_ms for report in reports),
        "errors": sum(report.errors for report in reports),
        "mean_batch": [
            before.mean_until(Batches.of(each.port))
            for before, each in zip(batches, subjects, strict=True)
        ],
        "wrk_cores": round((_children() - own) / span, 2),
        "gpu_percent": gpu.of_each,
        "servers": [
            thread_use.figures(before, after, span)
            for before, after in zip(befores, afters, strict=True)
        ],
    }


def _line(point: Found) -> str:
    cores = {
        kind: (use["cores"], use["busiest_process"])
        for server in point["servers"]
        for kind, use in server.items()
    }
    return (
        f"{point['images_per_second']:,.0f} images/s in batches of {point['mean_batch']}, "
        f"p50 {point['p50_ms']} ms, "
        f"{point['errors']} errors, wrk {point['wrk_cores']} cores, {cores}, {point['gpu_percent']}"
    )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ratios(setups: dict[str, Found], forms: list[str]) -> Found:
    rates = {
        name: {form: {n: p["images_per_second"] for n, p in found[form].items()} for form in forms}
        for name, found in setups.items()
        if all(form in found for form in forms)
    }
    ratios: Found = {}
    for base in ("one", "beside"):
        for name, found in rates.items():
            for form, rate in found.items():
                if base in rates and name != base:
                    own = rates[base][form]
                    mine = {n: round(rate[n] / own[n], 2) for n in rate if n in own}
                    mine["best"] = round(max(rate.values()) / max(own.values()), 2)
                    ratios.setdefault(f"{name} by {base}", {})[form] = mine
    return ratios


def _write_requests(photos: Path | None, folder: Path) -> None:
    """Write the files that wrk reads, one for each form."""
    given = [path.read_bytes() for path in sorted(photos.iterdir())] if photos else jpegs(196)[1]
    files = [subsampled(file) for file in given]
    wrk.write_requests(folder / "raw.requests", raw_requests(LABELS, files))
    wrk.write_requests(folder / "multipart.requests", multipart_requests(files))
    for form, path in BLURRED.items():
        wrk.write_requests(folder / f"{form}.requests", raw_requests(path, files))


def main() -> None:
    """Run the command line."""
    start, options, gpus = time.monotonic(), _arguments(), count_gpus()
    options.wrk = wrk.find(options.wrk)
    shares = shares_of(gpus)
    forms = options.forms or ["raw", "multipart", "blurred_by_gpu" if gpus else "blurred"]
    report: Found = {
        "benchmark": "two_gpus",
        "command": shlex.join(["python", "-m", "tests.bench.two_gpus", *sys.argv[1:]]),
        "gpus": gpus,
        "gpu": gpu_samples.describe(),
        "cpus": len(os.sched_getaffinity(0)),
        "shares": [sorted(each) for each in shares],
        "host": scaling(shares[0], shares[0] | shares[1]),
        "setups": {},
    }
    print(f"host: {report['host']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="two-gpus-") as name:
        folder = Path(name)
        _write_requests(options.photos, folder)
        setups = setups_of(options.setups, options.variant, options.darkroom, gpus)
        for setup, servers in setups.items():
            if time.monotonic() - start > options.limit - NEEDED:
                report["setups"][setup] = {"error": "no time left"}
                continue
            print(f"== {setup}", flush=True)
            try:
                some = options.connections if setup in options.setups else options.connections[-1:]
                with busy(shares[1] if setup.startswith("beside") else frozenset()):
                    found = _measured(options, servers, forms, some, folder)
                report["setups"][setup] = found
            except Exception as error:  # the other setups are still worth having
                report["setups"][setup] = {"error": f"{type(error).__name__}: {error}"[:2000]}
                print(report["setups"][setup]["error"], flush=True)
            report["ratios"] = _ratios(report["setups"], forms)
            if options.notes:
                options.notes.write_text(json.dumps(report))
    print(json.dumps(report.get("ratios")))
    print(json.dumps({**report, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
