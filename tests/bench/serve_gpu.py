"""Darkroom on a GPU over HTTP, against the device's own rates and against what users run today.

Method. All on one machine, one part after another. Images are photos, once as they are (`mixed`,
about 115 kB) and once re-encoded by Pillow at quality 90 in 4:2:0 (`subsampled`, about 68 kB).
Bodies are raw (one image) or multipart with 16; `filtered` asks for the image blurred, and is held
against decoding by the engines and encoding on all cores alone. wrk is a closed loop of up to four
threads. A status that is not 200, a failed image inside a 200, a broken connection and an answer
later than ten seconds are errors. After a warm-up there is one run for each number of connections;
the fastest without errors counts, and p50 at one connection is the latency of an image alone. p99
at half the highest rate comes from an open loop: four Python processes, Poisson arrivals. Cores
used are CPU seconds by elapsed seconds, from /proc; a GPU's utilisation is nvidia-smi's. The
device's own rates are measured by engine_rates.py. The peers (peers/) have the same weights, decode
with Pillow and get the same `subsampled` raw bodies from the same wrk.

Run: python -m tests.bench.serve_gpu [--photos FOLDER] [--wrk PATH] [--weights bundled]
[--seconds 4] [--front-ends 8] [--darkroom FLAGS] [--part NAME ...] [--out FILE]

Without a GPU everything but the device's own rates runs on the CPU, to try the benchmark itself.
"""

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import httpx

from models.networks.registry import BUNDLED
from tests.bench import gpu_samples, wrk
from tests.bench.images import jpegs, subsampled
from tests.bench.load import Connections, Reply, forms, open_loop, percentile, raw_post
from tests.bench.report import report
from tests.bench.subject import Subject, answers, says, started
from tests.ports import free_port

CONNECTIONS, OF_FORMS, OF_PEERS = (1, 32, 64, 128, 256, 512), (16, 32, 64), (1, 16, 64, 128)
LABELS = "/classify?top_k=1"
BLURRED = "/filter?name=gaussian_blur&sigma=2&format=jpeg"
EACH = 16
"""Images of a form."""

SENDERS = 4
"""Processes of the open loop."""

LABELLED = 48
"""Images whose labels are compared between services."""

DRAINING = 8
"""Requests one after the other between two runs: they are answered after those of the last run."""

PATIENCE = 75.0
"""Seconds after which a server that is not ready is given up."""

LITSERVE = ("--workers 10 --batch 32 --wait 0.005", "--workers 10 --batch 64 --wait 0.01")
PARTS = ("darkroom", "filtered", "engines", "litserve", "naive_8", "naive_1")

Found = dict[str, Any]


class Bench:
    """Images as requests in files, and the measurements of one run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.wrk = options, folder, wrk.find(options.wrk)
        self.source, photos = jpegs(196)
        if options.photos:
            self.source, photos = "photos", [each.read_bytes() for each in _files(options.photos)]
        self.sets = {"subsampled": [subsampled(each) for each in photos], "mixed": photos}
        self.on_gpu = gpu_samples.describe() is not None

    def requests(self, images: str, path: str, each: int = 1) -> Path:
        """Return the file of an image set as requests, with `each` images a form if not 1."""
        file, found = self.folder / f"{images}-{each}-{path.count('=')}", self.sets[images]
        raw = [raw_post(path, jpeg) for jpeg in found]
        wrk.write_requests(file, raw if each == 1 else forms(path, found, each))
        return file

    def darkroom(self) -> list[str]:
        """Return the command of a server that refuses nothing at this load."""
        flags = ["--front-ends", self.options.front_ends, "--weights", self.options.weights]
        flags += ["--log-level", "warning", "--max-images-in-flight", "8192"]
        if self.on_gpu:
            flags += ["--gpus", "auto", "--max-batch-size", "64"]
        words = [sys.executable, "-m", "app.cli", "serve", *flags]
        return words + shlex.split(self.options.darkroom)

    def curve(
        self, subject: Subject, requests: Path, connections: Sequence[int], each: int = 1
    ) -> Found:
        """Run wrk once for each number of connections, after a warm-up; the best counts."""
        wrk.run(self.wrk, subject.port, requests, max(connections), 3)
        points: list[Found] = []
        with gpu_samples.sampled() as gpu_percent:
            for n in connections:
                self.labels(
                    subject.port, lambda _: {"class_id": 0}, DRAINING
                )  # the last run's rest
                before, start = subject.cpu_seconds(), time.monotonic()
                run = wrk.run(self.wrk, subject.port, requests, n, self.options.seconds)
                cores = _cores(before, subject.cpu_seconds(), time.monotonic() - start)
                rate = round(run.per_second * each, 1)
                point = {"images_per_second": rate, **asdict(run), "server_cores": cores}
                points.append(point)
                print(requests.name, point, flush=True)
        clean = [point for point in points if not point["errors"]] or points
        return {
            "best": max(clean, key=lambda point: float(point["images_per_second"])),
            "p50_ms_at_1": next((p["p50_ms"] for p in points if p["connections"] == 1), None),
            "images_per_second": {p["connections"]: p["images_per_second"] for p in points},
            "errors": {p["connections"]: p["errors"] for p in points if p["errors"]},
            "gpu_percent": gpu_percent,
        }

    def labels(self, port: int, best: Callable[[Any], Any], count: int = LABELLED) -> list[int]:
        """Return the best class of the first images."""
        kind, found = {"Content-Type": "image/jpeg"}, []
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for jpeg in self.sets["subsampled"][:count]:
                reply = client.post(LABELS, content=jpeg, headers=kind).raise_for_status()
                found.append(int(best(reply.json())["class_id"]))
        return found

    def part(self, name: str) -> Found:
        """Measure one part."""
        if name == "engines":
            return self._engines()
        if name == "litserve":
            module = "tests.bench.peers.litserve_app"
            commands = {flags: ["-m", module, *flags.split()] for flags in LITSERVE}
            ready = answers("/health")
            return {flags: self._peer(words, ready) for flags, words in commands.items()}
        if name.startswith("naive"):
            processes = int(name.removeprefix("naive_"))
            words = ["-m", "uvicorn", "tests.bench.peers.naive:app", "--workers", str(processes)]
            words += ["--no-access-log", "--backlog", "4096"]
            return self._peer(words, says("Application startup complete", processes))
        port = free_port()
        command = [*self.darkroom(), "--port", str(port)]
        log = self.folder / f"{name}.log"
        with started(command, port, log, answers("/readyz"), PATIENCE) as subject:
            found: Found = {"command": command[1:], "seconds_to_ready": subject.seconds_to_ready}
            measure = self._labelled if name == "darkroom" else self._filtered
            return found | measure(subject)

    def _labelled(self, subject: Subject) -> Found:
        found: Found = {}
        for images in self.sets:
            raw = self.curve(subject, self.requests(images, LABELS), CONNECTIONS)
            several = self.requests(images, LABELS, EACH)
            rate = raw["best"]["per_second"] / 2
            found[images] = {
                "raw": raw,
                "multipart": self.curve(subject, several, OF_FORMS, EACH),
                "half_rate": self._half(subject.port, images, rate),
            }
        first = self.labels(subject.port, lambda answer: answer["results"][0]["predictions"][0])
        return found | {"labels": first}

    def _half(self, port: int, images: str, rate: float) -> Found:
        """Return latencies of an open loop at a rate."""
        with ProcessPoolExecutor(SENDERS) as pool:
            work = [
                pool.submit(_sent, port, self.sets[images], rate / SENDERS, self.options.seconds, n)
                for n in range(SENDERS)
            ]
            replies = [reply for each in work for reply in each.result()]
        seconds = [each.seconds for each in replies]
        return {
            "asked_per_second": round(rate, 1),
            "answered_per_second": round(len(replies) / self.options.seconds, 1),
            "errors": sum(each.status != 200 for each in replies),
            "p50_ms": percentile(seconds, 0.5),
            "p99_ms": percentile(seconds, 0.99),
        }

    def _filtered(self, subject: Subject) -> Found:
        requests = self.requests("subsampled", BLURRED)
        return {"blurred": self.curve(subject, requests, CONNECTIONS)}

    def _engines(self) -> Found:
        """Return the rates of the device alone, and of the machine's cores at encoding."""
        if not self.on_gpu:
            return {}
        words = [sys.executable, "-m", "tests.bench.engine_rates"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        found: Found = json.loads(told.stdout.splitlines()[-1])
        return found

    def _peer(self, words: Sequence[str], ready: Callable[[int, Path], bool]) -> Found:
        """Measure one peer under the same load, with raw bodies only."""
        port, weights = free_port(), self.options.weights
        file = BUNDLED.path if weights == BUNDLED.name else Path(weights).resolve()
        command = [sys.executable, *words, "--port", str(port)]
        variables = {"BENCH_WEIGHTS": str(file)}
        log = self.folder / "peer.log"
        with started(command, port, log, ready, PATIENCE, variables) as subject:
            found: Found = {"seconds_to_ready": subject.seconds_to_ready}
            found |= self.curve(subject, self.requests("subsampled", LABELS), OF_PEERS)
            return found | {"labels": self.labels(port, lambda answer: answer)}


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix.lower() in (".jpg", ".jpeg"))


def _cores(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], span: float
) -> dict[str, float]:
    """Return the cores that the processes of each role used."""
    roles: dict[str, list[float]] = {}
    for pid, (role, seconds) in after.items():
        used = (seconds - before.get(pid, (role, 0.0))[1]) / span
        roles.setdefault(role.rstrip(" 0123456789"), []).append(used)
    return {role: round(sum(used), 2) for role, used in roles.items()}


def _sent(port: int, photos: list[bytes], rate: float, seconds: float, seed: int) -> list[Reply]:
    """Send the share of one process of an open loop."""
    requests = [raw_post(LABELS, photo) for photo in photos]
    return asyncio.run(open_loop(Connections(port), requests, rate, seconds, seed=seed))


def compared(parts: dict[str, Found]) -> dict[str, float]:
    """Return the ratios of Darkroom's best rate to all others, and the share of equal labels."""
    ratios: dict[str, float] = {}
    ours, engines = parts.get("darkroom", {}), parts.get("engines", {})
    labels = ours.pop("labels", None)
    for images in ("subsampled", "mixed") if labels else ():
        rate = ours[images]["raw"]["best"]["images_per_second"]
        for name in (f"hardware_{images}", f"preprocess_{images}", "model"):
            if alone := engines.get(name):
                ratios[f"{images}_by_{name.split('_')[0]}"] = round(rate / alone, 3)
    for form, found in parts.get("filtered", {}).items():
        limit = min(engines.get("hardware_subsampled", 0.0), engines.get("encode", 0.0))
        if limit and isinstance(found, dict) and "best" in found:
            rate = found["best"]["images_per_second"]
            ratios[f"{form}_by_decode_and_encode"] = round(rate / limit, 3)
    peers = {name: each for name, each in parts.items() if name.startswith("naive")}
    peers |= {f"litserve {name}": each for name, each in parts.get("litserve", {}).items()}
    for name, peer in peers.items():
        theirs = peer.pop("labels", None)
        if labels and theirs:
            rate = ours["subsampled"]["raw"]["best"]["images_per_second"]
            ratios[f"by_{name}"] = round(rate / peer["best"]["images_per_second"], 2)
            same = sum(a == b for a, b in zip(labels, theirs, strict=True))
            ratios[f"labels_as_{name}"] = round(same / len(labels), 3)
    return ratios


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Run the command line; a part that fails says so in the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, help="a folder of JPEGs")
    parser.add_argument("--wrk", help="wrk's path, if it is not on the PATH")
    parser.add_argument("--weights", default=BUNDLED.name, help="bundled, or a file")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--front-ends", default="8", help="a number, or auto")
    parser.add_argument("--darkroom", default="", help="more flags for darkroom serve")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, help="a file that takes the result after each part")
    options = parser.parse_args()
    parts = dict[str, Found]()
    with tempfile.TemporaryDirectory(prefix="serve-gpu-") as folder:
        bench = Bench(options, Path(folder))
        for name in options.part:
            print(f"== {name}", flush=True)
            try:
                parts[name] = bench.part(name)
            except (OSError, RuntimeError, subprocess.CalledProcessError, httpx.HTTPError) as error:
                parts[name] = {"error": f"{type(error).__name__}: {error}"[-1500:]}
            if options.out:
                options.out.write_text(json.dumps(parts))
    sizes = {f"{n}_kB": round(sum(map(len, f)) / len(f) / 1e3, 1) for n, f in bench.sets.items()}
    report(
        "serve_gpu",
        versions={name: _version(name) for name in ("torch", "litserve", "uvicorn")},
        wrk=wrk.version(bench.wrk),
        images={"source": bench.source, "count": len(bench.sets["mixed"]), **sizes},
        ratios=compared(parts),
        parts=parts,
    )


if __name__ == "__main__":
    main()
