"""The parts of `serve_gpu`, each in a process of its own: python -m tests.bench.parts NAME PLAN.

What a part found is written to NAME.json beside the plan after every step, so a part that is ended
early has said what it knew.
"""

import http.client
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import open_loop, wrk
from tests.bench.gpu_samples import GpuSamples
from tests.bench.plan import BLURRED, IMAGES_PER_MULTIPART, Plan
from tests.bench.subject import Subject, answers, says, started
from tests.ports import free_port

LABELLED = 48
"""Images whose labels are compared between services."""

DRAINING = 8
"""Requests, each on a connection of its own, between two runs."""

Found = dict[str, Any]


class Notes:
    """What a part has found so far."""

    def __init__(self, path: Path) -> None:
        self._path, self._found = path, Found()

    def add(self, **found: object) -> None:
        """Add results, and write them to disk at once."""
        self._found |= found
        self._path.write_text(json.dumps(self._found))


def darkroom(plan: Plan, notes: Notes) -> None:
    """Measure both image sets, raw and multipart, in closed loops and an open one."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), *plan.darkroom]
    log = Path(plan.folder) / "darkroom.log"
    with started(command, port, log, answers("/readyz"), plan.patience) as subject:
        notes.add(command=command[1:], seconds_to_ready=subject.seconds_to_ready)
        for images in ("subsampled", "mixed"):
            found = Found()
            requests = plan.requests(images, "raw")
            wrk.run(plan.wrk, port, requests, max(plan.connections), plan.warm_up)
            for form, connections, each in (
                ("raw", plan.connections, 1),
                ("multipart", plan.multipart_connections, IMAGES_PER_MULTIPART),
            ):
                found[form] = _curve(plan, subject, images, form, connections, each)
                notes.add(**{images: found})
            rate = found["raw"]["best"]["per_second"] / 2
            half = open_loop.run(port, requests, rate, plan.seconds)
            print(f"{images}: open loop at half the rate: {half}", flush=True)
            found["half_rate"] = asdict(half)
            notes.add(**{images: found})
        notes.add(labels=_labels(plan, port, lambda a: a["results"][0]["predictions"][0]))


def filtered(plan: Plan, notes: Notes) -> None:
    """Measure raw JPEGs through a Gaussian, answered as JPEGs."""
    port, forms = free_port(), [form for form in BLURRED if form == "blurred" or on_gpu(plan)]
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), *plan.darkroom]
    log = Path(plan.folder) / "filtered.log"
    with started(command, port, log, answers("/readyz"), plan.patience) as subject:
        for form in forms:
            requests = plan.requests("subsampled", form)
            wrk.run(plan.wrk, port, requests, max(plan.connections), plan.warm_up)
            found = _curve(plan, subject, "subsampled", form, plan.connections, 1)
            notes.add(**{form: found})


def on_gpu(plan: Plan) -> bool:
    """Return whether Darkroom was started with a GPU."""
    return "--gpus" in plan.darkroom


def engines(plan: Plan, notes: Notes) -> None:
    """Measure the device alone, in images per second, and the machine's cores at encoding."""
    from tests.bench import engine_rates as alone

    rates: dict[str, Callable[[], float]] = {
        "model": alone.model_rate,
        "preprocess": lambda: alone.preprocess_rate(plan.jpegs("subsampled")),
        "hardware_subsampled": lambda: alone.hardware_rate(plan.jpegs("subsampled")),
        "hardware_mixed": lambda: alone.hardware_rate(plan.jpegs("mixed")),
        "encode": lambda: alone.encode_rate(plan.jpegs("subsampled")),
        "encode_by_gpu": lambda: alone.device_encode_rate(plan.jpegs("subsampled")),
    }
    for name, rate in rates.items():
        try:
            notes.add(**{name: round(rate(), 1)})
        except Exception as error:  # the other rates are still worth having
            notes.add(**{f"{name}_error": f"{type(error).__name__}: {error}"[:300]})


def litserve(plan: Plan, notes: Notes) -> None:
    """Measure each of LitServe's configurations; the best one counts."""
    for number, flags in enumerate(plan.litserve):
        port = free_port()
        module = "tests.bench.peers.litserve_app"
        command = [sys.executable, "-m", module, "--port", str(port), *flags]
        found = _peer(plan, command, port, f"litserve-{number}", answers("/health"))
        notes.add(**{" ".join(flags): found})


def naive_8(plan: Plan, notes: Notes) -> None:
    """Measure the naive service with eight processes."""
    _naive(plan, notes, 8)


def naive_1(plan: Plan, notes: Notes) -> None:
    """Measure the naive service with one process."""
    _naive(plan, notes, 1)


def _naive(plan: Plan, notes: Notes, processes: int) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.bench.peers.naive:app", "--port", str(port)]
    command += ["--workers", str(processes), "--no-access-log", "--backlog", "4096"]
    ready = says("Application startup complete", processes)
    notes.add(**_peer(plan, command, port, f"naive-{processes}", ready))


def _peer(
    plan: Plan, command: list[str], port: int, name: str, ready: Callable[[int, Path], bool]
) -> Found:
    """Measure one peer under the same load, with raw bodies only."""
    log = Path(plan.folder) / f"{name}.log"
    environment = {"BENCH_WEIGHTS": plan.weights_file}
    found = Found()
    with started(command, port, log, ready, plan.patience, environment) as subject:
        found["seconds_to_ready"] = subject.seconds_to_ready
        requests = plan.requests("subsampled", "raw")
        wrk.run(plan.wrk, port, requests, max(plan.peer_connections), plan.warm_up)
        print(name, flush=True)
        found |= _curve(plan, subject, "subsampled", "raw", plan.peer_connections, 1)
        found["labels"] = _labels(plan, port, lambda answer: answer)
    return found


def _curve(
    plan: Plan, subject: Subject, images: str, form: str, connections: Sequence[int], each: int
) -> Found:
    """Run wrk once for each number of connections. The best run has no errors if any has none."""
    points = []
    with GpuSamples() as gpu:
        for n in connections:
            point = _point(plan, subject, plan.requests(images, form), n, each)
            points.append(point)
            print(
                f"{images} {form}, {n} connections: {point['images_per_second']:,.0f} img/s, p50 "
                f"{point['p50_ms']} ms, p99 {point['p99_ms']} ms, {point['errors']} errors, cores "
                f"{point['server_cores']}, wrk {point['generator_cores']}",
                flush=True,
            )
    clean = [point for point in points if not point["errors"]] or points
    return {
        "best": max(clean, key=lambda point: point["images_per_second"]),
        "p50_ms_at_1": next((p["p50_ms"] for p in points if p["connections"] == 1), None),
        "images_per_second": {p["connections"]: p["images_per_second"] for p in points},
        "errors": {p["connections"]: p["errors"] for p in points if p["errors"]},
        "gpu_percent": gpu.means,
    }


def _point(plan: Plan, subject: Subject, requests: Path, connections: int, each: int) -> Found:
    """Run wrk once, and measure the cores that the server's processes use meanwhile."""
    _drained(subject.port, plan.jpegs("subsampled")[0])
    before, start = subject.cpu_seconds(), time.monotonic()
    report = wrk.run(plan.wrk, subject.port, requests, connections, plan.seconds)
    after, span = subject.cpu_seconds(), time.monotonic() - start
    roles: dict[str, list[float]] = {}
    for pid, (role, seconds) in after.items():
        used = (seconds - before.get(pid, (role, 0.0))[1]) / span
        roles.setdefault(role.rstrip(" 0123456789"), []).append(used)
    cores = {role: round(sum(used), 2) for role, used in roles.items()}
    if "front end" in roles:
        cores["busiest front end"] = round(max(roles["front end"]), 2)
    rate = round(report.per_second * each, 1)
    return {"images_per_second": rate, **asdict(report), "server_cores": cores}


def _drained(port: int, jpeg: bytes) -> None:
    """Wait until the server has done what the last run left unanswered: requests that came later
    are answered after it.
    """
    for _ in range(DRAINING):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        client.request("POST", "/classify?top_k=1", jpeg, {"Content-Type": "image/jpeg"})
        client.getresponse().read()
        client.close()


def _labels(plan: Plan, port: int, best: Callable[[Any], Any]) -> list[int | None]:
    """Return the best class of the first images."""
    found: list[int | None] = []
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for jpeg in plan.jpegs("subsampled")[:LABELLED]:
        client.request("POST", "/classify?top_k=1", jpeg, {"Content-Type": "image/jpeg"})
        answer = client.getresponse()
        body = answer.read()
        found.append(int(best(json.loads(body))["class_id"]) if answer.status == 200 else None)
    client.close()
    return found


PARTS = {part.__name__: part for part in (darkroom, filtered, engines, litserve, naive_8, naive_1)}


def main() -> None:
    """Run the command line."""
    name, path = sys.argv[1], Path(sys.argv[2])
    notes = Notes(path.with_name(f"{name}.json"))
    try:
        PARTS[name](Plan.read(path), notes)
    except Exception as error:  # the result states it for people, the exit code for programs
        notes.add(error=f"{type(error).__name__}: {error}"[-1500:])
        raise


if __name__ == "__main__":
    main()
