"""A job whose server is killed again and again: is every item in the results once, at what price?

`python -m tests.chaos.jobs_killed --images 100000 --kills 10 --operation filter --side 64` works
through a job of small local images twice: undisturbed, and with `kill -9` at random moments, each
followed by a new start. With `--front-ends N` one random front end is killed and the server
replaces it. The promises: each item
has exactly one record, its index and id belong together, rows that were read before a kill never
change, and the working time (from ready to killed or finished) is at most 1.1 times that of the
undisturbed job and 20 seconds for each kill: until then no other process has the chunks of a
killed one, and a job of a second waits for them at its end.
`--operation classify` takes much longer on a CPU; `--flags "--gpus auto"` computes on GPUs. The
last line is JSON; exit code 1 where a promise is broken.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.jobs.jobs import SWEEP
from app.jobs.store import LEASE
from tests.pictures import jpeg
from tests.server import Served, children, serving, until

MOST_TIME = 1.1
TAKEN_OVER = LEASE + SWEEP
"""Seconds after which others have the chunks of a process that was killed."""

KINDS = 50
"""Different photos; the items of a job name them in turn."""

OPERATIONS = {"classify": "classify&top_k=1", "filter": "filter&name=invert"}
"""The query of each operation that the items may have."""

LOOK = 0.1
FINISHED = ("succeeded", "failed", "cancelled", "expired")


class Undertaking:
    """One job on servers of one data folder, and the results that were read of it."""

    def __init__(self, folder: Path, photos: list[str], given: argparse.Namespace) -> None:
        self._folder = folder
        self._photos = photos
        self._images = given.images
        self._operation = OPERATIONS[given.operation]
        self._flags = ["--front-ends", str(given.front_ends), *given.flags.split()]
        self.path = ""
        self.read = b""
        self.seconds = 0.0
        """The working time of all servers until now."""

    @contextmanager
    def server(self) -> Iterator[tuple[Served, httpx.Client]]:
        """Start a server that may read the photos."""
        allowed = Path(self._photos[0].removeprefix("file://")).parent
        flags = ["--data-folder", str(self._folder), "--storage-allow", f"file://{allowed}/"]
        flags += ["--weights", "bundled", "--precision", "fp32", "--grace", "0"]
        with (
            serving(*flags, "--log-level", "error", *self._flags) as served,
            httpx.Client(base_url=f"http://127.0.0.1:{served.port}", timeout=60) as client,
        ):
            yield served, client

    def make(self, client: httpx.Client) -> None:
        """Send the manifest, line by line."""

        def lines() -> Iterator[bytes]:
            for number in range(self._images):
                item = {"id": f"i{number}", "url": self._photos[number % len(self._photos)]}
                yield json.dumps(item).encode() + b"\n"

        headers = {"Content-Type": "application/x-ndjson"}
        query = f"/jobs?operation={self._operation}"
        answer = client.post(query, content=lines(), headers=headers)
        answer.raise_for_status()
        self.path = answer.headers["Location"]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time of the block as working time: all in which a server works on the job."""
        began = time.monotonic()
        yield
        self.seconds += time.monotonic() - began

    def follow(self, client: httpx.Client, done: int) -> bool:
        """Return whether the job has finished, once `done` items or all are done."""
        while True:
            job = client.get(self.path).json()
            if job["state"] in FINISHED or job["items"]["done"] >= done:
                return job["state"] in FINISHED
            time.sleep(LOOK)

    def take(self, client: httpx.Client) -> None:
        """Read the results that are new."""
        count = self.read.count(b"\n")
        answer = client.get(f"{self.path}/results?offset={count}", timeout=600)
        self.read += answer.raise_for_status().content

    def check(self, client: httpx.Client) -> list[str]:
        """Return what is wrong with all results; those that were read before are their start."""
        found = client.get(f"{self.path}/results", timeout=600).content
        wrong = [] if found.startswith(self.read) else ["rows changed after they were read"]
        records = [json.loads(line) for line in found.splitlines()]
        indices = {each["index"] for each in records}
        if len(records) != len(indices):
            wrong.append(f"{len(records) - len(indices)} items are there twice")
        if indices != {*range(self._images)}:
            wrong.append(f"{len(indices)} of {self._images} items have a record")
        if any(each["id"] != f"i{each['index']}" for each in records):
            wrong.append("an id belongs to another index")
        failed = [each for each in records if each["status"] != "ok"]
        if failed:
            wrong.append(f"{len(failed)} items failed, the first with {failed[0]}")
        return wrong


def undisturbed(job: Undertaking) -> list[str]:
    """Work through a job in one go; return what is wrong."""
    with job.server() as (_, client):
        job.make(client)
        with job.working():
            job.follow(client, sys.maxsize)
        return job.check(client)


def killed(job: Undertaking, given: argparse.Namespace, chance: random.Random) -> list[str]:
    """Work through a job while servers or front ends are killed; return what is wrong."""
    images, kills = given.images, given.kills
    moments = sorted(chance.randrange(images // 20, images * 9 // 10) for _ in range(kills))
    while True:
        with job.server() as (served, client):
            if not job.path:
                job.make(client)
            with job.working():
                alive = True
                while alive and moments:
                    job.follow(client, moments.pop(0))
                    job.take(client)
                    alive = _kill(served, chance)
                if alive:
                    job.follow(client, sys.maxsize)
            if alive:
                return job.check(client)


def _kill(served: Served, chance: random.Random) -> bool:
    """Kill one front end, or a server of one process; return whether the server goes on."""
    found = [pid for name, pid in children(served.process.pid).items() if "front" in name]
    if not found:
        served.process.kill()
        served.process.wait()
        return False
    os.kill(chance.choice(found), signal.SIGKILL)
    time.sleep(1.0)
    until(lambda: _ready(served.port))
    return True


def _ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def drawn(folder: Path, side: int) -> list[str]:
    """Return the addresses of small square photos, which are drawn into a folder."""
    folder.mkdir()
    for number in range(KINDS):
        (folder / f"{number}.jpg").write_bytes(jpeg(number, side, side))
    return [f"file://{each}" for each in sorted(folder.iterdir())]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--front-ends", type=int, default=0)
    parser.add_argument("--operation", choices=[*OPERATIONS], default="classify")
    parser.add_argument("--side", type=int, default=224, help="pixels of each side of the images")
    parser.add_argument("--flags", default="--gpus 0", help="further flags of the server")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> int:
    """Run the command line; return the exit code."""
    given = arguments().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = drawn(Path(folder) / "photos", given.side)
        one, other = (
            Undertaking(Path(folder) / name, photos, given) for name in ("undisturbed", "killed")
        )
        wrong = undisturbed(one)
        wrong += killed(other, given, random.Random(given.seed))
    allowed = MOST_TIME * one.seconds + TAKEN_OVER * given.kills
    if other.seconds > allowed:
        wrong.append(f"the working time is {other.seconds:.1f} s, {allowed:.1f} s are allowed")
    report: dict[str, Any] = {
        "program": "jobs_killed",
        "command": "python -m tests.chaos.jobs_killed " + " ".join(sys.argv[1:]),
        "images": given.images,
        "kills": given.kills,
        "front_ends": given.front_ends,
        "operation": given.operation,
        "undisturbed_s": round(one.seconds, 2),
        "killed_s": round(other.seconds, 2),
        "allowed_s": round(allowed, 2),
        "ratio": round(other.seconds / one.seconds, 3),
        "images_per_second": round(given.images / one.seconds, 1),
        "broken": wrong,
    }
    print(json.dumps(report))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
