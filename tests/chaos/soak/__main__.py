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
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tests.chaos.harness.attack import Attack, Steps, Target
from tests.chaos.harness.checkout import HERE, Checkout, under_attack
from tests.chaos.harness.processes import tree
from tests.chaos.soak.plot import svg
from tests.chaos.soak.samples import QUANTITIES, Sample, growth, sample
from tests.chaos.soak.traffic import Traffic

_EVERY = 5.0
_FAULT_EVERY = 120.0
_MOST_GROWTH = 1.1
_LOST_WITH_A_FRONT_END = 8
"""Requests that may be under way at a front end when it is killed."""


def soak(_target: Target) -> Steps:
    """Describe mixed traffic."""
    yield None


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--front-ends", type=int, default=2)
    parser.add_argument("--checkout", type=Path, default=HERE)
    parser.add_argument("--plot", type=Path, help="where to draw the samples, as SVG")
    parser.add_argument("--samples", type=Path, help="where to keep the samples, as JSON")
    arguments = parser.parse_args()
    checkout = Checkout(arguments.checkout.resolve())
    attack = Attack(soak, promise=6)
    with under_attack(checkout, attack, arguments.front_ends, "127.0.0.1") as (target, process):
        traffic = Traffic(target)
        traffic.start()
        try:
            samples, faults, killed = _watch(target, arguments.minutes * 60)
        finally:
            traffic.stop()
        time.sleep(3)
        survived = process.poll() is None
    grown = {name: round(growth(samples, name), 3) for name in QUANTITIES}
    broken = [f"{name} grew {most} times" for name, most in grown.items() if most > _MOST_GROWTH]
    allowed = _LOST_WITH_A_FRONT_END * sum("front end" in name for name in killed)
    if traffic.lost() > allowed:
        broken.append(f"{traffic.lost()} good requests were lost, at most {allowed} may be")
    if traffic.crashes():
        broken.append(f"{traffic.crashes()} answers of 500")
    if not survived:
        broken.append("the server ended")
    if arguments.plot:
        arguments.plot.write_text(svg(samples, faults))
    if arguments.samples:
        kept = {"faults": faults, "samples": [asdict(each) for each in samples]}
        arguments.samples.write_text(json.dumps(kept) + "\n")
    report = {
        "program": "soak",
        "command": "python -m tests.chaos.soak " + " ".join(sys.argv[1:]),
        "commit": checkout.commit(),
        "minutes": arguments.minutes,
        "faults": killed,
        "answers": dict(sorted(traffic.statuses.items())),
        "lost": traffic.lost(),
        "growth": grown,
        "last": {name: getattr(samples[-1], name) for name in QUANTITIES},
        "broken": broken,
    }
    print(json.dumps(report))
    return int(bool(broken))


def _watch(target: Target, seconds: float) -> tuple[list[Sample], list[float], list[str]]:
    """Return samples, and when faults were injected into what."""
    chance = random.Random(12)
    started = time.monotonic()
    samples: list[Sample] = []
    faults: list[float] = []
    killed: list[str] = []
    while (at := time.monotonic() - started) < seconds:
        samples.append(sample(target.pid, at))
        if at - (faults[-1] if faults else 0) > _FAULT_EVERY and at < seconds - _FAULT_EVERY / 2:
            faults.append(at)
            killed.append(_kill_one(target.pid, chance, len(faults)))
            print(f"{at:.0f} s: killed {killed[-1]}", file=sys.stderr, flush=True)
        time.sleep(_EVERY)
    return samples, faults, killed


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
        return "decoder" if "fork_server" in line else line.rstrip("\0").split("\0")[-1][:40]
    return "ended"


if __name__ == "__main__":
    sys.exit(main())
