"""Mixed traffic with faults injected: does anything grow, is anything lost?

A server with two front ends has 8 closed-loop clients: 60 % good requests, the rest damaged,
hostile, expiring, or from clients that leave. Every two minutes a process is killed: the worker, a
front end, or a decoder. Every five seconds memory, shared memory, descriptors, threads and
processes are read. The promise: the last fifth's median is at most 1.1 times the second fifth's,
nothing is answered with 500, and no good request is lost but those of a front end that was killed.

Run: python -m tests.chaos.soak --minutes 30. The last line is JSON; the exit code is 1 if the
promise is broken.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests import hostile
from tests.chaos.harness.attack import Target
from tests.chaos.harness.http import ask, connect, post
from tests.chaos.harness.processes import proportional, tree, usage
from tests.chaos.hostile import damaged
from tests.pictures import jpeg, png
from tests.server import serving
from tests.shared import ODD

_EVERY = 5.0
_FAULT_EVERY = 120.0
_MOST_GROWTH = 1.1
_LOST_WITH_A_FRONT_END = 8
"""Requests that may be under way at a front end when it is killed."""


STEPS = {
    "memory_mb": 50.0,
    "shared_mb": 50.0,
    "descriptors": 16.0,
    "threads": 6.0,
    "processes": 2.0,
}
"""Growth below this is no growth: one buffer more, or one thread that a pool starts late."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at all processes of a server, `at` seconds after the start."""

    at: float
    memory_mb: float
    shared_mb: float
    descriptors: int
    threads: int
    processes: int


def sample(pid: int, at: float) -> Sample:
    """Look now."""
    descriptors = threads = 0
    shared = 0
    for each in tree(pid):
        with suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{each}/fd"))
            threads += len(os.listdir(f"/proc/{each}/task"))
            shared += proportional(each, "Pss_Shmem:")
    found = usage(pid)
    return Sample(at, found.memory / 1e6, shared / 1e6, descriptors, threads, found.processes)


def medians(samples: Sequence[Sample], quantity: str) -> list[float]:
    """Return the median of each fifth of the time."""
    values = [float(getattr(each, quantity)) for each in samples]
    fifth = max(1, len(values) // 5)
    return [statistics.median(values[n * fifth :][:fifth] or values) for n in range(5)]


def growth(samples: Sequence[Sample], quantity: str) -> float:
    """Return the median of the last fifth over that of the second fifth; 1 where nothing grows."""
    _, early, *_, late = medians(samples, quantity)
    return late / max(1.0, early) if late - early > STEPS[quantity] else 1.0


GOOD = ("classify", "filter", "form", "process")
"""Kinds that must be answered with 200."""


def requests() -> list[tuple[str, bytes]]:
    """Return prepared requests, each with the name of its kind; half of them are good."""
    kind = "application/octet-stream"
    found = [("classify", post("/classify", jpeg(n, 320 + 16 * n, 240), kind)) for n in range(12)]
    filters = ("gaussian_blur&sigma=3", "median&size=5&format=webp", "sobel&format=png")
    found += [
        ("filter", post(f"/filter?name={name}", jpeg(n, 480, 360), kind))
        for n, name in enumerate(filters * 4)
    ]
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    form = b"".join(head + jpeg(n) + b"\r\n" for n in range(6)) + b"--b--\r\n"
    found += [("form", post("/classify", form, "multipart/form-data; boundary=b"))] * 3
    found += [("process", post("/process", form, "multipart/form-data; boundary=b"))] * 2
    found += [("classify", post("/classify", png(n), kind)) for n in range(4)]
    refused = b'{"urls": ["http://169.254.169.254/", "http://127.0.0.1/"]}'
    found += [("refused", post("/classify", refused, "application/json"))] * 2
    bad: tuple[bytes, ...] = (b"", b"nothing", jpeg(1)[:900], hostile.png_of_text_bombs(20))
    bad += (hostile.jpeg_of_scans(40, 1500), hostile.bmp_of_deltas(100_000))
    found += [("bad", post("/classify", data)) for data in bad]
    found += [("bad", post("/filter?name=invert", data)) for _, data in damaged.files(60)]
    odd = [path for path in sorted(ODD.glob("*")) if path.stat().st_size < 2_000_000]
    found += [("bad", post("/filter?name=invert", path.read_bytes())) for path in odd[::4]]
    late = "X-Deadline-Ms: 30\r\n"
    found += [("late", post("/filter?name=median&size=25", jpeg(3, 900, 700), kind, late))] * 8
    return found


@dataclass(slots=True)
class Traffic:
    """Closed-loop clients until `stop`; every good request that was not answered is counted."""

    target: Target
    clients: int = 8
    statuses: Counter[str] = field(default_factory=Counter)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start the clients."""
        prepared = requests()
        self._threads = [
            threading.Thread(target=self._client, args=(n, prepared)) for n in range(self.clients)
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop the clients after the requests that are under way."""
        self._done.set()
        for each in self._threads:
            each.join()

    def lost(self) -> int:
        """Return the number of good requests that were neither answered with 200 nor refused."""
        fine = ("200", "503", "429")
        lost = 0
        for key, count in self.statuses.items():
            kind, word = key.split()
            lost += count if kind in GOOD and word not in fine else 0
        return lost

    def crashes(self) -> int:
        """Return the number of answers of 500."""
        return sum(count for key, count in self.statuses.items() if key.endswith(" 500"))

    def _client(self, number: int, prepared: list[tuple[str, bytes]]) -> None:
        chance = random.Random(number)
        while not self._done.is_set():
            if chance.random() < 0.05:
                self._leave(chance.choice(prepared)[1], chance)
                continue
            good = chance.random() < 0.6
            kinds = [each for each in prepared if (each[0] in GOOD) == good]
            kind, request = chance.choice(kinds)
            found = ask(self.target, request, 60.0)
            with self._lock:
                self.statuses[f"{kind} {found.status or found.end}"] += 1
            time.sleep(chance.uniform(0, 0.1))

    def _leave(self, request: bytes, chance: random.Random) -> None:
        """Send a part, or all, and go."""
        with suppress(OSError):
            connection = connect(self.target)
            with connection:
                connection.sendall(request[: chance.randrange(1, len(request) + 1)])
                time.sleep(chance.uniform(0, 0.05))
        with self._lock:
            self.statuses["left early"] += 1


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--front-ends", type=int, default=2)
    arguments = parser.parse_args()
    flags = ("--weights", "random", "--log-level", "error")
    with serving(*flags, "--front-ends", str(arguments.front_ends)) as served:
        target = Target(served.port, served.process.pid)
        traffic = Traffic(target)
        traffic.start()
        try:
            samples, killed = _watch(target, arguments.minutes * 60)
        finally:
            traffic.stop()
        time.sleep(3)
        survived = served.process.poll() is None
    grown = {name: round(growth(samples, name), 3) for name in STEPS}
    broken = [f"{name} grew {most} times" for name, most in grown.items() if most > _MOST_GROWTH]
    allowed = _LOST_WITH_A_FRONT_END * sum("front end" in name for name in killed)
    if traffic.lost() > allowed:
        broken.append(f"{traffic.lost()} good requests were lost, at most {allowed} may be")
    if traffic.crashes():
        broken.append(f"{traffic.crashes()} answers of 500")
    if not survived:
        broken.append("the server ended")
    words = ["git", "describe", "--always", "--dirty=+"]
    report = {
        "program": "soak",
        "command": "python -m tests.chaos.soak " + " ".join(sys.argv[1:]),
        "commit": subprocess.run(words, capture_output=True, text=True).stdout.strip(),
        "minutes": arguments.minutes,
        "faults": killed,
        "answers": dict(sorted(traffic.statuses.items())),
        "lost": traffic.lost(),
        "growth": grown,
        "medians_of_fifths": {name: medians(samples, name) for name in STEPS},
        "broken": broken,
    }
    print(json.dumps(report))
    return int(bool(broken))


def _watch(target: Target, seconds: float) -> tuple[list[Sample], list[str]]:
    """Return samples, and the processes into which faults were injected."""
    chance = random.Random(12)
    started = time.monotonic()
    samples: list[Sample] = []
    fault, killed = 0.0, list[str]()
    while (at := time.monotonic() - started) < seconds:
        samples.append(sample(target.pid, at))
        if at - fault > _FAULT_EVERY and at < seconds - _FAULT_EVERY / 2:
            fault = at
            killed.append(_kill_one(target.pid, chance, len(killed) + 1))
            print(f"{at:.0f} s: killed {killed[-1]}", file=sys.stderr, flush=True)
        time.sleep(_EVERY)
    return samples, killed


def _kill_one(pid: int, chance: random.Random, number: int) -> str:
    """Kill a worker, a front end, or another process of the server, in turn; its name."""
    named = {each: _name(each) for each in tree(pid) if each != pid}
    kinds: Sequence[Sequence[int]] = (
        [p for p, name in named.items() if name.startswith("worker")],
        [p for p, name in named.items() if name.startswith("front end")],
        [p for p, name in named.items() if not name.startswith(("worker", "front end"))],
    )
    some = kinds[number % len(kinds)] or list(named)
    if not some:
        return "nothing: there is one process"
    victim = chance.choice(list(some))
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return named[victim]


def _name(pid: int) -> str:
    """Return the last word of a command line, which names the role of a process of the server."""
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        return "decoder" if "decoders.child" in line else line.rstrip("\0").split("\0")[-1][:40]
    return "ended"


if __name__ == "__main__":
    sys.exit(main())
