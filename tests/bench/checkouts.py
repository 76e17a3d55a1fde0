"""Two checkouts of Darkroom over HTTP, in one run: what a change costs ordinary images.

Method. One server of each checkout runs all the time, on the same machine and with the same flags;
only one of them is under load at a time, and none before both have done nothing for a while: a
worker on a GPU serves before it has prepared everything. wrk, a closed loop, sends every image in
turn: raw bodies to `/classify`, raw bodies to `/filter` (a Gaussian blur of sigma 2, answered as a
JPEG), PNGs to `/classify`, multipart bodies with 16 images, and one connection alone. Each kind is
measured in pairs, old then new and in the next pair new then old, after one run of each that does
not count. What counts is the median over the pairs of new rate by old rate, and of new p50 by old
p50: a slow moment of the machine falls on both halves of a pair. A run with any error is an error
of the whole. The CPU time of all processes of a server for an image, user and system, varies less
than rates while other programs use the cores.

Run: python -m tests.bench.checkouts --old FOLDER [--pairs 5] [--seconds 4] [--connections 8]
[--flags "--front-ends 2"] [--only raw ...] [--least 0.9] [--wrk PATH]
"""

import argparse
import io
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from tests.bench import wrk
from tests.bench.images import jpegs, subsampled
from tests.bench.load import forms, raw_post
from tests.bench.report import report
from tests.bench.subject import Subject, answers, started
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]

READY_WITHIN = 300.0
"""Seconds; a GPU's first start compiles every kernel."""

QUIET, QUIET_WITHIN = 3, 60
"""Seconds in a row in each of which a server must use less than a tenth of a core before it is
measured, and seconds until it is measured in any case."""

CLASSIFY = "/classify?top_k=1"
BLUR = "/filter?name=gaussian_blur&sigma=2&format=jpeg"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of load: its requests, images in each, and its connections (0: as asked)."""

    name: str
    requests: list[bytes]
    images: int = 1
    connections: int = 0


def kinds(count: int) -> list[Kind]:
    """Return every kind of load, made of the same `count` photos."""
    photos = [subsampled(photo) for photo in jpegs(count)[1]]
    raw = [raw_post(CLASSIFY, photo) for photo in photos]
    blurred = [raw_post(BLUR, photo) for photo in photos]
    pngs = [raw_post(CLASSIFY, _png(photo), "image/png") for photo in photos[:32]]
    return [
        Kind("alone", raw, connections=1),
        Kind("raw", raw),
        Kind("multipart", forms(CLASSIFY, photos), images=16),
        Kind("filter", blurred),
        Kind("png", pngs),
    ]


def _png(photo: bytes) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(photo)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def compared(
    old: Subject, new: Subject, kind: Kind, options: argparse.Namespace, program: str
) -> dict[str, Any]:
    """Return the pairs of one kind of load, and their medians."""
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests"
        wrk.write_requests(requests, kind.requests)
        connections = kind.connections or options.connections

        def run(subject: Subject) -> tuple[wrk.Report, float]:
            """Return the report, and the milliseconds of CPU time for an image."""
            before = subject.all_cpu_seconds()
            report = wrk.run(program, subject.port, requests, connections, options.seconds)
            if report.errors or not report.requests:
                raise RuntimeError(f"{kind.name}, port {subject.port}: {report}")
            used = subject.all_cpu_seconds() - before
            return report, used * 1e3 / (report.requests * kind.images)

        run(old), run(new)
        pairs = []
        for number in range(options.pairs):
            first, second = (old, new) if number % 2 == 0 else (new, old)
            one, other = run(first), run(second)
            pairs.append((one, other) if number % 2 == 0 else (other, one))
    reports = [(before, after) for (before, _), (after, _) in pairs]
    cpu = [(before, after) for (_, before), (_, after) in pairs]
    rates = [after.per_second / before.per_second for before, after in reports]
    delays = [after.p50_ms / before.p50_ms for before, after in reports]
    times = [after / before for before, after in cpu]
    return {
        "connections": connections,
        "old_images_per_second": _median([one.per_second * kind.images for one, _ in reports]),
        "new_images_per_second": _median([one.per_second * kind.images for _, one in reports]),
        "old_p50_ms": _median([before.p50_ms for before, _ in reports]),
        "new_p50_ms": _median([after.p50_ms for _, after in reports]),
        "old_cpu_ms_per_image": _median([before for before, _ in cpu]),
        "new_cpu_ms_per_image": _median([after for _, after in cpu]),
        "rate_ratio": round(statistics.median(rates), 3),
        "rate_ratios": [round(rate, 3) for rate in rates],
        "p50_ratio": round(statistics.median(delays), 3),
        "cpu_ratio": round(statistics.median(times), 3),
        "cpu_ratios": [round(time, 3) for time in times],
    }


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)


def _served(checkout: Path, flags: list[str], stack: ExitStack) -> Subject:
    """Start a server of a checkout, imported from there and from nowhere else, and wait until it is
    ready.

    It also runs there: processes of older checkouts import from the current folder.
    """
    port = free_port()
    log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
    path = os.pathsep.join([str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-m", "app.cli", "serve", "--port", str(port), *flags]
    environment = {"PYTHONPATH": path, "DARKROOM_LOG_LEVEL": "warning"}
    return stack.enter_context(
        started(command, port, log, answers("/readyz"), READY_WITHIN, environment, checkout)
    )


def _wait_until_quiet(subject: Subject) -> None:
    """Wait until a server has nothing to do that it began at its start."""
    quiet, used = 0, subject.all_cpu_seconds()
    for _ in range(QUIET_WITHIN):
        time.sleep(1.0)
        before, used = used, subject.all_cpu_seconds()
        quiet = quiet + 1 if used - before < 0.1 else 0
        if quiet == QUIET:
            return


def _revision(checkout: Path) -> str | None:
    told = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return told.stdout.strip() or None


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--old", type=Path, required=True, help="the checkout to compare with")
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4, help="of each run")
    arguments.add_argument("--connections", type=int, default=8)
    arguments.add_argument("--photos", type=int, default=96, help="different images at most")
    arguments.add_argument("--flags", default="", help="more flags of `darkroom serve`, for both")
    arguments.add_argument("--only", nargs="+", help="these kinds of load only")
    arguments.add_argument(
        "--least", type=float, default=0.0, help="rate ratio below which it fails"
    )
    arguments.add_argument("--wrk", help="wrk's path, if it is not on the PATH")
    return arguments.parse_args()


def main() -> None:
    """Run the command line."""
    options = _arguments()
    program = wrk.find(options.wrk)
    flags = ["--weights", "bundled", *shlex.split(options.flags)]
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        old, new = (_served(each, flags, stack) for each in (options.old.resolve(), ROOT))
        for subject in (old, new):
            _wait_until_quiet(subject)
        for kind in kinds(min(options.photos, len(jpegs(options.photos)[1]))):
            if options.only and kind.name not in options.only:
                continue
            found[kind.name] = compared(old, new, kind, options, program)
            shown = found[kind.name]
            ratios = (f"{name} {shown[f'{name}_ratio']}" for name in ("rate", "p50", "cpu"))
            print(f"{kind.name:10} {', '.join(ratios)}", flush=True)
    report("checkouts", old=_revision(options.old), new=_revision(ROOT), kinds=found)
    slower = [name for name, each in found.items() if each["rate_ratio"] < options.least]
    if slower:
        sys.exit(f"slower than {options.least} of the old rate: {', '.join(slower)}")


if __name__ == "__main__":
    main()
