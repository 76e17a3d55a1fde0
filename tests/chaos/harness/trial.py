"""One attack from start to verdict: server, observer, attacker in a process of its own, neighbours.

The attacker builds its inputs before the clock starts, so that its own work does not count.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from tests.chaos.harness.attack import Attack, Finding, Outcome, Target
from tests.chaos.harness.checkout import HERE, Checkout, under_attack
from tests.chaos.harness.http import ask, post
from tests.chaos.harness.neighbours import Neighbours
from tests.chaos.harness.observer import Observer
from tests.chaos.harness.processes import usage
from tests.chaos.harness.verdict import Trial, verdict
from tests.pictures import jpeg

_HEAD_START = 0.3
"""Seconds the attacker has before the neighbours begin."""

_LEAST = 3.0
"""Seconds that neighbours are asked for, also where the attack is over sooner."""

_SETTLING, _SETTLED_WITHIN, _IDLE = 1.5, 40.0, 0.2
"""Seconds of one look at an idle server and of all, and the share of a core that idling takes."""


def run(attack: Attack, checkout: Checkout, front_ends: int, own_addresses: bool) -> dict[str, Any]:
    """Attack a fresh server; the figures and the broken promises."""
    own_addresses = own_addresses or attack.own_addresses
    source = "127.0.0.1" if not own_addresses else "127.0.0.9"
    with under_attack(checkout, attack, front_ends, source) as (target, process):
        _warm_up(target)
        observer = Observer(target)
        observer.start()
        neighbours = Neighbours(target, own_addresses, attack.neighbours)
        try:
            steps, seconds, finished = _attacked(attack, target, neighbours)
        finally:
            neighbours.stop()
            observer.stop()
        survived = process.poll() is None
    return verdict(
        Trial(attack, front_ends, seconds, finished, survived, steps, observer, neighbours)
    )


def as_attacker(attack: Attack, target: Target) -> None:
    """Run the attacker's process: prepare, report that, wait for the start, attack, and report each
    step.
    """
    steps = attack.run(target)
    next(steps)
    print("ready", flush=True)
    sys.stdin.readline()
    for step in steps:
        if step is not None:
            values = asdict(step)
            values.pop("head", None)
            print(json.dumps({"kind": type(step).__name__, **values}), flush=True)


def _attacked(
    attack: Attack, target: Target, neighbours: Neighbours
) -> tuple[list[Outcome | Finding], float, bool]:
    words = [sys.executable, "-m", "tests.chaos.attacks", "--as-attacker", attack.name]
    words += [str(target.port), str(target.pid), target.source, target.folder]
    steps: list[Outcome | Finding] = []
    with subprocess.Popen(
        words, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as attacker:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        if attacker.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the attacker {attack.name} could not prepare")
        started = time.monotonic()
        timer = threading.Timer(attack.patience, attacker.kill)
        timer.start()
        attacker.stdin.write("go\n")
        attacker.stdin.flush()
        time.sleep(_HEAD_START)
        neighbours.start()
        steps.extend(_steps(attacker.stdout.readline))
        seconds = time.monotonic() - started
        timer.cancel()
        finished = attacker.wait() == 0
    time.sleep(max(0.0, _LEAST - seconds))
    return steps, seconds, finished


def _steps(next_line: Callable[[], str]) -> Iterator[Outcome | Finding]:
    while line := next_line():
        values = json.loads(line)
        kind = Outcome if values.pop("kind") == "Outcome" else Finding
        yield kind(**values)


def _warm_up(target: Target) -> None:
    """Send requests before the attack, because what the first ones allocate for good is not the
    attacker's.
    """
    for number in range(8):
        path = "/classify" if number % 2 else "/filter?name=gaussian_blur&sigma=2"
        ask(target, post(path, jpeg(number, 640, 480), "image/jpeg"))
    end = time.monotonic() + _SETTLED_WITHIN
    while time.monotonic() < end:
        before = usage(target.pid).cpu
        time.sleep(_SETTLING)
        if usage(target.pid).cpu - before < _IDLE * _SETTLING:
            return
