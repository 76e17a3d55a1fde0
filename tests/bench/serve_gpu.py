"""Darkroom on a GPU over HTTP, against the device's own rates and against what users run today.

Method. All on one machine, one part after another, each in a process of its own that is ended with
all it started. Images are photos, once as they are (`mixed` subsamplings, about 115 kB) and once
re-encoded by Pillow at quality 90 with 4:2:0 chroma (`subsampled`, about 68 kB). Bodies are raw
(`POST /classify?top_k=1`, one image) or multipart with 16 images; `filtered` asks for the image
blurred instead, and is held against decoding by the engines and encoding on all cores alone. wrk is
the load: a closed loop, up to four threads, every photo in turn, all answers read. A status that is
not 200, a failed image inside a 200, a broken connection and an answer later than ten seconds are
errors. After a warm-up there is one run for each number of connections, begun when what the run
before left is answered. The fastest without errors counts, and p50 at one connection is the latency
of an image alone. wrk has no rate control, so p99 at half the highest rate comes from an open loop
(open_loop.py): four Python processes, Poisson arrivals. Cores used are CPU seconds by elapsed
seconds, from /proc for the server, by role, and from wait for wrk; a GPU's utilisation is nvidia-
smi's, every 200 ms. The device's own rates are measured by engine_rates.py on the same images. The
peers (peers/) have the same weights, decode with Pillow and get the same `subsampled` raw bodies
from the same wrk; the share of labels that agree with Darkroom's is shown.

Run: python -m tests.bench.serve_gpu [--quick] [--photos FOLDER] [--wrk PATH] [--weights bundled]
[--part NAME ...] [--skip NAME ...] [--logs FILE]

Without a GPU everything but the device's own rates runs on the CPU, to try the benchmark itself.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from models.networks.resnet18 import BUNDLED
from tests.bench import gpu_samples, wrk
from tests.bench.images import jpegs, subsampled
from tests.bench.parts import PARTS
from tests.bench.plan import Plan
from tests.bench.ratios import compared
from tests.bench.stack import cuda_stack
from tests.bench.subject import family, tail

LIMITS = {
    "darkroom": 220,
    "filtered": 80,
    "engines": 80,
    "litserve": 130,
    "naive_8": 70,
    "naive_1": 60,
}
QUICK_LIMITS = {
    "darkroom": 80,
    "filtered": 50,
    "engines": 40,
    "litserve": 50,
    "naive_8": 40,
    "naive_1": 30,
}
WHOLE, QUICK_WHOLE = 470, 145
"""Seconds that a run may take at most, if --limit says nothing else."""

LITSERVE = ["--workers 10 --batch 32 --wait 0.005", "--workers 10 --batch 64 --wait 0.01"]


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    arguments.add_argument("--photos", type=Path, help="a folder of JPEGs")
    arguments.add_argument("--count", type=int, default=196, help="photos at most")
    arguments.add_argument("--wrk", help="wrk's path, if it is not on the PATH")
    arguments.add_argument("--weights", default="bundled", help="bundled, or a file")
    arguments.add_argument("--seconds", type=float, help="of each run; wrk rounds them")
    arguments.add_argument("--front-ends", default="8", help="a number, or auto")
    arguments.add_argument("--darkroom", default="", help="more flags for darkroom serve")
    arguments.add_argument("--litserve", action="append", help="flags of one configuration")
    arguments.add_argument("--part", nargs="+", choices=PARTS, help="these parts only")
    arguments.add_argument("--limit", type=float, help="seconds for the whole run")
    arguments.add_argument("--skip", nargs="+", choices=PARTS, default=[])
    arguments.add_argument("--logs", type=Path, help="a file for the ends of all logs")
    return arguments.parse_args()


def _plan(options: argparse.Namespace, folder: str) -> Plan:
    quick = options.quick
    bundled = options.weights == BUNDLED.name
    variants = options.litserve or LITSERVE[: 1 if quick else 2]
    return Plan(
        folder=folder,
        wrk=wrk.find(options.wrk),
        weights=options.weights,
        weights_file=str(BUNDLED.path if bundled else Path(options.weights).resolve()),
        darkroom=_darkroom_flags(options),
        seconds=options.seconds or (2 if quick else 4),
        patience=45 if quick else 75,
        warm_up=min(options.seconds or 3, 1 if quick else 3),
        connections=[1, 64, 256] if quick else [1, 32, 64, 128, 256, 512],
        multipart_connections=[16] if quick else [16, 32, 64],
        peer_connections=[1, 64] if quick else [1, 16, 64, 128],
        litserve=[shlex.split(variant) for variant in variants],
    )


def _darkroom_flags(options: argparse.Namespace) -> list[str]:
    """Return the flags for a machine with a GPU; at this load they make Darkroom refuse nothing."""
    flags = ["--front-ends", options.front_ends, "--weights", options.weights]
    flags += ["--log-level", "warning", "--max-images-in-flight", "8192"]
    told = subprocess.run(
        [sys.executable, "-m", "app.cli", "serve", "--help"], capture_output=True, text=True
    )
    if "--gpus" in told.stdout and gpu_samples.describe():
        flags += ["--gpus", "auto", "--max-batch-size", "64"]
    return flags + shlex.split(options.darkroom)


def _write_images(options: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """Write both image sets as requests; return their source, their number and their mean sizes."""
    source, photos = jpegs(options.count)
    if options.photos:
        paths = sorted(p for p in options.photos.iterdir() if p.suffix.lower() in (".jpg", ".jpeg"))
        source, photos = "photos", [path.read_bytes() for path in paths[: options.count]]
    sets = {"subsampled": [subsampled(photo) for photo in photos], "mixed": photos}
    for name, files in sets.items():
        plan.write_requests(name, files)
    sizes = {f"{n}_kB": round(sum(map(len, f)) / len(f) / 1e3, 1) for n, f in sets.items()}
    return {"source": source, "count": len(photos), **sizes}


def _isolated(name: str, plan: Plan, limit: float) -> dict[str, Any]:
    """Return what a part found within its time; end every process that it started."""
    start, folder = time.monotonic(), Path(plan.folder)
    log = folder / f"part-{name}.log"
    command = [sys.executable, "-m", "tests.bench.parts", name, str(folder / "plan.json")]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, start_new_session=True)
        try:
            code = process.wait(max(limit, 1))
            failure = f"exit code {code}: {tail(log)}" if code else None
        except subprocess.TimeoutExpired:
            kind = name.split("_", 1)[0]
            logs = [f"{p.name}: {tail(p, 400)}" for p in folder.glob(f"{kind}*.log")]
            failure = f"not done after {limit:.0f} s; {' '.join(logs)}"
        finally:
            _end(process)
    notes = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(notes.read_text()) if notes.exists() else {}
    if failure:
        found.setdefault("error", failure)
        print(f"{name} FAILED: {found['error']}", flush=True)
    return found | {"part_seconds": round(time.monotonic() - start, 1)}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, and every process that it started and that still runs, in whatever session."""
    members = family(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in members[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _run(options: argparse.Namespace, plan: Plan, end: float) -> dict[str, dict[str, Any]]:
    """Run every part that was asked for, and return what each found."""
    parts: dict[str, dict[str, Any]] = {}
    plan.write()
    limits = QUICK_LIMITS if options.quick else LIMITS
    for name in options.part or PARTS:
        if name in options.skip:
            continue
        print(f"== {name}", flush=True)
        left = end - time.monotonic()
        given = min(limits[name], left)
        parts[name] = _isolated(name, plan, given) if left > 5 else {"error": "no time left"}
    return parts


def main() -> None:
    """Run the command line."""
    start, options = time.monotonic(), _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="serve-gpu-") as folder:
        plan = _plan(options, folder)
        images = _write_images(options, plan)
        whole = options.limit or (QUICK_WHOLE if options.quick else WHOLE)
        parts = _run(options, plan, start + whole)
        if options.logs:
            logs = sorted(Path(folder).glob("*.log"))
            options.logs.write_text("\n".join(f"== {p.name}\n{tail(p, 50_000)}" for p in logs))
    ratios = compared(parts)
    for name, ratio in ratios.items():
        print(f"{name}: {ratio}")
    report = {
        "benchmark": "serve_gpu",
        "command": shlex.join(["python", "-m", "tests.bench.serve_gpu", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": gpu_samples.describe(),
        "stack": cuda_stack(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "litserve", "uvicorn")},
        "wrk": wrk.version(plan.wrk),
        "images": images,
        "seconds_each": plan.seconds,
        "ratios": ratios,
        "parts": parts,
        "seconds": round(time.monotonic() - start, 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
