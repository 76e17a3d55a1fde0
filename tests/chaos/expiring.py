"""Requests whose deadlines pass, for ten minutes, beside good ones: who suffers, and what stays?

`python -m tests.chaos.expiring --seconds 600` starts a server. Two closed-loop clients ask for
labels of small photos, alone for a tenth of the time. Then `--clients` others ask as well, for
slow filters of large photos, with `X-Deadline-Ms` between 1 and 200, by which hardly any of it can
be done. The promises: every good request is answered with 200; a request that expires is answered
with 503 or 504 within its deadline and three seconds, or with 200; the good ones' median latency in
the last fifth is at most 1.5 times that in the second fifth; memory, descriptors, threads and
processes do not grow; afterwards the server is ready and holds nothing. The last line is JSON, with
the latencies beside expiring ones and alone; exit code 1 where a promise is broken.
"""

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from tests.chaos.harness.attack import SLACK, Attack, Outcome, Steps, Target
from tests.chaos.harness.checkout import HERE, Checkout, under_attack
from tests.chaos.harness.http import ask, post
from tests.chaos.soak.samples import QUANTITIES, Sample, growth, sample
from tests.pictures import jpeg

GOOD_CLIENTS = 2
EVERY = 2.0
"""Seconds between two samples."""

SLOWEST = 10
"""The slowest good requests that are reported, with their time and what they waited for."""

MOST_GROWTH = 1.1
MOST_LATENCY = 1.5

IN_FLIGHT = (
    "darkroom_in_flight_images",
    "darkroom_in_flight_bytes",
)


@dataclass(slots=True)
class Seen:
    """What all clients saw: latencies of good requests with their times, statuses, lateness."""

    started: float = field(default_factory=time.monotonic)
    good: list[tuple[float, float]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    latest: float = 0.0
    slowest: list[tuple[float, float, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_good(self, found: Outcome) -> None:
        """Note the answer of a good request."""
        with self.lock:
            self.statuses[f"good {found.status or found.end}"] += 1
            at = round(time.monotonic() - self.started, 1)
            self.good.append((at, found.seconds))
            self.slowest.append((round(found.seconds, 3), at, _timing(found)))
            self.slowest = sorted(self.slowest, reverse=True)[:SLOWEST]

    def add_expiring(self, found: Outcome, deadline: float) -> None:
        """Note the answer of a request with a short deadline."""
        with self.lock:
            self.statuses[f"expiring {found.status or found.end}"] += 1
            self.latest = max(self.latest, found.seconds - deadline)

    def latencies(self, begin: float, end: float) -> list[float]:
        """Return the sorted latencies of the good requests that ended between `begin` and `end`."""
        return sorted(seconds for at, seconds in self.good if begin <= at < end)


def expiring(_target: Target) -> Steps:
    """Describe requests whose deadlines pass."""
    yield None


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--front-ends", type=int, default=0)
    given = parser.parse_args()
    checkout, seen = Checkout(HERE), Seen()
    attack = Attack(expiring, promise=4)
    with under_attack(checkout, attack, given.front_ends, "127.0.0.1") as (target, process):
        seen.started = time.monotonic()
        samples = _traffic(target, seen, given.seconds, given.clients)
        left = _left(target)
        survived = process.poll() is None
    alone, beside = given.seconds / 10, given.seconds * 0.9
    early = seen.latencies(alone + beside / 5, alone + 2 * beside / 5)
    late = seen.latencies(alone + 4 * beside / 5, given.seconds)
    grown = {name: round(growth(samples, name), 3) for name in QUANTITIES}
    broken = _broken(seen, early, late, grown, left)
    report = {
        "program": "expiring",
        "command": "python -m tests.chaos.expiring " + " ".join(sys.argv[1:]),
        "commit": checkout.commit(),
        "seconds": given.seconds,
        "statuses": dict(sorted(seen.statuses.items())),
        "good_alone_s": _shown(seen.latencies(0, alone)),
        "good_beside_s": _shown(seen.latencies(alone, given.seconds)),
        "good_median_s": {"second fifth": _median(early), "last fifth": _median(late)},
        "latest_after_deadline_s": round(seen.latest, 3),
        "slowest_good": seen.slowest,
        "growth": grown,
        "left": left,
        "broken": broken if survived else [*broken, "the server ended"],
    }
    print(json.dumps(report))
    return int(bool(report["broken"]))


def _traffic(target: Target, seen: Seen, seconds: float, clients: int) -> list[Sample]:
    """Send good requests alone for a tenth of the time, then both kinds; return samples of the
    latter.
    """
    done = threading.Event()
    photos = [post("/classify?top_k=1", jpeg(n)) for n in range(8)]
    large = [jpeg(n, 1600, 1200) for n in range(4)]

    def good(number: int) -> None:
        seen.add_good(ask(target, photos[number % len(photos)], 60.0))

    def short(number: int) -> None:
        chance = random.Random(number)
        deadline = chance.randint(1, 200)
        path = chance.choice(("/filter?name=median&size=31", "/filter?name=nl_means&h=10"))
        more = f"X-Deadline-Ms: {deadline}\r\n"
        body = post(path, chance.choice(large), "image/jpeg", more)
        seen.add_expiring(ask(target, body, 60.0), deadline / 1000)

    def start(work: Callable[[int], None], count: int) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=_client, args=(work, done, n * 1_000_000)) for n in range(count)
        ]
        for each in threads:
            each.start()
        return threads

    threads, samples = start(good, GOOD_CLIENTS), []
    try:
        time.sleep(seconds / 10)
        threads += start(short, clients)
        while (at := time.monotonic() - seen.started) < seconds:
            samples.append(sample(target.pid, at))
            time.sleep(EVERY)
    finally:
        done.set()
        for each in threads:
            each.join()
    return samples


def _client(work: Callable[[int], None], done: threading.Event, number: int) -> None:
    while not done.is_set():
        work(number)
        number += 1


def _broken(
    seen: Seen,
    early: list[float],
    late: list[float],
    grown: dict[str, float],
    left: dict[str, float],
) -> list[str]:
    """Return the promises that were not kept."""
    allowed = ("good 200", "expiring 200", "expiring 503", "expiring 504")
    broken = [f"{count} × {name}" for name, count in seen.statuses.items() if name not in allowed]
    if seen.latest > SLACK:
        broken.append(f"an answer came {seen.latest:.2f} s after its deadline")
    if not early or not late or _median(late) > MOST_LATENCY * _median(early):
        broken.append(f"good requests took {_median(early)} s, and later {_median(late)} s")
    broken += [f"{name} grew {most} times" for name, most in grown.items() if most > MOST_GROWTH]
    return broken + [f"{name} is {value} afterwards" for name, value in left.items() if value]


def _left(target: Target, within: float = 10.0) -> dict[str, float]:
    """Return what the server states that it holds a moment after the last answer; 0 is right."""
    end = time.monotonic() + within
    while True:
        lines = httpx.get(f"http://127.0.0.1:{target.port}/metrics", timeout=30).text.splitlines()
        found = {
            name: float(line.split()[-1])
            for name in IN_FLIGHT
            for line in lines
            if line.startswith(name) and not line.startswith("#")
        }
        if (found and not any(found.values())) or time.monotonic() > end:
            return found or {"no metrics": 1.0}
        time.sleep(0.2)


def _timing(found: Outcome) -> str:
    """Return the status of an answer with the stages of its headers or with its error."""
    lines = found.head.decode("latin-1").split("\r\n")
    stages = [line for line in lines if line.lower().startswith("server-timing:")]
    return f"{found.status or found.end} {stages[0][14:] if stages else found.excerpt[:200]}"


def _shown(latencies: list[float]) -> dict[str, float]:
    """Return the number of latencies, their median and their 99th percentile."""
    last = latencies[int(0.99 * (len(latencies) - 1))] if latencies else 0.0
    return {"count": len(latencies), "p50": _median(latencies), "p99": round(last, 4)}


def _median(latencies: list[float]) -> float:
    return round(statistics.median(latencies), 4) if latencies else 0.0


if __name__ == "__main__":
    sys.exit(main())
