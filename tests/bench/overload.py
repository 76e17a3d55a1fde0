"""Overload: open-loop traffic at 1, 2, 5 and 20 times what a server can do, against a real one.

The capacity is measured first, closed loop, with the server's own deadline, so that nothing is
refused. Then requests leave as a Poisson process, each with a deadline of its own. Reported for
each load: goodput (answers with 200 a second), refusals and how long they took, accepted requests
that died at their deadline (504), the largest resident memory; at the end, how long after the
load a lone request is answered as before. `least_goodput_of_peak` compares each goodput with the
peak, or with the rate of that load's requests if it is lower.
Work is one slow filter of a small image, in thousands of short calls, or by `--work` the labels or
the blur of photos. All clients have one address.
Run: python -m tests.bench.overload [--seconds 10] [--work nl_means]
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from typing import Any

from tests.bench.images import jpegs
from tests.bench.load import Connections, Reply, closed_loop, open_loop, percentile, raw_post
from tests.bench.report import report
from tests.bench.subject import Subject, darkroom
from tests.chaos.harness.processes import usage
from tests.pictures import jpeg

FLAGS = ("--weights", "random", "--gpus", "0", "--log-level", "warning")
LOADS = (1, 2, 5, 20)
WORK = {
    "nl_means": ("/filter?name=nl_means", [jpeg(1, 120, 90)]),
    "labels": ("/classify", jpegs(48)[1]),
    "blur": ("/filter?name=gaussian_blur&sigma=5&format=jpeg", jpegs(48)[1]),
}
"""The path of a request, and its images in turn."""

CLOSED_LOOP = 16
DEADLINE_MS = 3000
BEGIN = 1.0
RECOVERED = 3.0
"""A lone request is answered as before when it takes at most this many times as long."""


def phase(
    load: float, replies: list[Reply], start: float, seconds: float, memory: int
) -> dict[str, Any]:
    """Return the figures of one load; answers count while it lasts."""
    good = [r for r in replies if r.status == 200]
    refused = [r for r in replies if r.status == 503]
    died = sum(r.status == 504 for r in replies)
    within = sum(start + BEGIN <= r.at <= start + seconds for r in good)
    return {
        "load": load,
        "asked": len(replies),
        "goodput_per_second": round(within / (seconds - BEGIN), 2),
        "refused": len(refused),
        "refusal_p50_ms": percentile([r.seconds for r in refused], 0.5),
        "refusal_p99_ms": percentile([r.seconds for r in refused], 0.99),
        "died_at_deadline": died,
        "died_share_of_accepted": round(died / max(1, died + len(good)), 4),
        "others": Counter(r.status for r in replies if r.status not in (200, 503, 504)),
        "accepted_p99_ms": percentile([r.seconds for r in good], 0.99),
        "memory_mib": memory,
        "retry_after": sorted({r.retry_after for r in refused if r.retry_after is not None}),
    }


async def recovery(connections: Connections, request: bytes, alone: float) -> float | None:
    """Return the seconds until a lone request is answered as before; None if that takes more than
    20.
    """
    start = time.monotonic()
    while time.monotonic() < start + 20:
        reply = await connections.ask(request)
        if reply.status == 200 and reply.seconds <= RECOVERED * alone:
            return round(reply.at - start, 2)
        await asyncio.sleep(0.05)
    return None


async def measure(
    subject: Subject, seconds: float, factors: list[float], work: str
) -> dict[str, object]:
    """Measure all loads, and the recovery after each."""
    path, images = WORK[work]
    requests = [raw_post(path, each, more=f"X-Deadline-Ms: {DEADLINE_MS}\r\n") for each in images]
    request = requests[0]
    connections = Connections(subject.port)
    for _ in range(3):
        await connections.ask(request)
    alone = min([(await connections.ask(request)).seconds for _ in range(5)])
    patient = [raw_post(path, each) for each in images]
    answers = await closed_loop(connections, patient, CLOSED_LOOP, seconds / 2)
    capacity = sum(each.status == 200 for each in answers) / (seconds / 2)
    if not capacity:
        raise RuntimeError("the server answers nothing with 200")
    print(f"alone {alone * 1e3:.0f} ms, capacity {capacity:.1f}/s", file=sys.stderr)
    phases, recovered = [], []
    for factor in factors:
        memory, start = list[int](), time.monotonic()

        def note(memory: list[int] = memory) -> None:
            memory.append(usage(subject.process.pid).memory >> 20)

        note()
        replies = await open_loop(connections, requests, capacity * factor, seconds, note)
        phases.append(phase(factor, replies, start, seconds, max(memory)))
        last = max(reply.at for reply in replies)
        recovered.append(await recovery(connections, request, alone))
        print(phases[-1], round(last - start, 1), recovered[-1], file=sys.stderr)
    connections.close()
    peak = max(each["goodput_per_second"] for each in phases)
    possible = [min(peak, each["asked"] / seconds) for each in phases]
    shares = [
        each["goodput_per_second"] / most for each, most in zip(phases, possible, strict=True)
    ]
    return {
        "capacity_per_second": round(capacity, 2),
        "alone_ms": round(alone * 1e3, 1),
        "deadline_ms": DEADLINE_MS,
        "phases": phases,
        "least_goodput_of_peak": round(min(shares), 3),
        "recovery_seconds": recovered,
    }


def main() -> None:
    """Start a server, load it, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--front-ends", default="0")
    parser.add_argument("--work", choices=WORK, default="nl_means")
    given = parser.parse_args()
    with darkroom(*FLAGS, "--front-ends", given.front_ends) as subject:
        found = asyncio.run(measure(subject, given.seconds, given.loads, given.work))
    report("overload", work=given.work, **found)


if __name__ == "__main__":
    main()
