"""One attack from start to verdict: server, observer, attacker in a process of its own, neighbours.

The attacker builds its inputs before the clock starts, so that its own work does not count.
"""

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.chaos.harness.attack import NEIGHBOURS, Attack, Finding, Outcome, Target
from tests.chaos.harness.http import answer, ask, connect, post
from tests.chaos.harness.processes import usage
from tests.edge import behind
from tests.pictures import jpeg
from tests.server import serving

_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_EVERY = 0.1
_MEMORY_EVERY = 0.2


@dataclass(slots=True)
class Observer:
    """Threads that measure until `stop`; start it before the attack, when the server is idle."""

    target: Target
    livez_worst: float = 0.0
    livez_failed: int = 0
    idle_bytes: int = 0
    peak_bytes: int = 0
    cpu: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _cpu_before: float = 0.0

    def start(self) -> None:
        """Measure what the idle server holds, then begin."""
        idle = usage(self.target.pid)
        self.idle_bytes = self.peak_bytes = idle.memory
        self._cpu_before = idle.cpu
        self._threads = [threading.Thread(target=each) for each in (self._livez, self._memory)]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End; the last probe of `/livez` may still take its time."""
        self._done.set()
        for each in self._threads:
            each.join()
        self.cpu = max(self.cpu, usage(self.target.pid).cpu - self._cpu_before)

    def _livez(self) -> None:
        while not self._done.is_set():
            started = time.monotonic()
            found = ask(replace(self.target, source="127.0.0.1"), _LIVEZ, _PATIENCE)
            self.livez_worst = max(self.livez_worst, time.monotonic() - started)
            self.livez_failed += found.status != 200
            self._done.wait(_EVERY)

    def _memory(self) -> None:
        while not self._done.is_set():
            found = usage(self.target.pid)
            self.peak_bytes = max(self.peak_bytes, found.memory)
            self.cpu = max(self.cpu, found.cpu - self._cpu_before)
            self._done.wait(_MEMORY_EVERY)


WITHIN = 15.0
"""Seconds within which each request of a good client must be answered."""

_PATIENCE = 60.0
_PAUSE = 1.0
_RETRY = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Neighbours:
    """Fifteen good clients and what they saw; `slowest` in seconds.

    A client that is refused with 503 or 429 waits as `Retry-After` says and asks again, as a good
    client does; its time counts from its first try.
    """

    target: Target
    spared: int = 0
    refused: int = 0
    slowest: float = 0.0
    largest_error: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _bad: set[int] = field(default_factory=set)

    def start(self) -> None:
        """Let all of them ask at once, then about once a second each until `stop`."""
        for number in range(NEIGHBOURS):
            self._threads.append(threading.Thread(target=self._client, args=(number,)))
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop sending requests, and wait for those under way."""
        self._done.set()
        for each in self._threads:
            each.join()
        self.spared = NEIGHBOURS - len(self._bad)

    def _client(self, number: int) -> None:
        photo = jpeg(number, 640, 480)
        path = "/classify" if number % 2 else "/filter?name=gaussian_blur&sigma=2"
        request = post(path, photo, "image/jpeg")
        source = f"127.0.0.{number + 10}"
        self._one(number, request, source)
        while not self._done.wait(_PAUSE):
            self._one(number, request, source)

    def _one(self, number: int, request: bytes, source: str) -> None:
        started = time.monotonic()
        while True:
            status, size, wait, end = self._try(request, source)
            took = time.monotonic() - started
            again = status in (503, 429) and took + wait < WITHIN
            with self._lock:
                if status in (503, 429):
                    self.refused += 1
                if end != "200":
                    self.ends[end] += 1
                    self.largest_error = max(self.largest_error, size)
            if not again:
                break
            time.sleep(wait)
        with self._lock:
            self.slowest = max(self.slowest, took)
            if end != "200" or took > WITHIN:
                self._bad.add(number)

    def _try(self, request: bytes, source: str) -> tuple[int | None, int, float, str]:
        """Return the status, the size of the answer, the seconds to wait if refused, and a word for
        the tally.
        """
        started = time.monotonic()
        try:
            connection = connect(replace(self.target, source=source), _PATIENCE)
        except OSError as error:
            return None, 0, 1.0, type(error).__name__
        with connection:
            found = answer(connection, started, _PATIENCE, request)
        match = _RETRY.search(found.head)
        wait = float(match[1]) if match else 1.0
        return found.status, found.body_bytes, wait, str(found.status or found.end)


ATTACKER = "127.0.0.9"
"""The address of the attacker; a neighbour has an address of its own, from 127.0.0.10 on."""

_HEAD_START = 0.3
"""Seconds the attacker has before the neighbours begin."""

_LEAST = 3.0
"""Seconds that neighbours are asked for, also where the attack is over sooner."""

_SETTLING, _SETTLED_WITHIN, _IDLE = 1.5, 40.0, 0.2
"""Seconds of one look at an idle server and of all, and the share of a core that idling takes."""

LIVEZ_WITHIN, LARGEST_ERROR, LARGEST_GROWTH = 1.0, 100_000, 400.0
"""Seconds, bytes and megabytes that an attack may cost."""

_MB = 1e6


def run(attack: Attack, through: str | None = None) -> dict[str, Any]:
    """Attack a fresh server; return the figures and the broken promises.

    `through` names a proxy of `docker/edge` that all clients connect to. Good clients then always
    have addresses of their own, because a proxy is there for clients of many addresses.
    """
    front_ends = 2 if attack.front_ends else 0
    flags = ["--weights", "random", "--log-level", "error", "--front-ends", str(front_ends)]
    flags += ["--trusted-proxies", "127.0.0.1"] if through else []
    limited = ("prlimit", f"--nofile={attack.descriptors}") if attack.descriptors else ()
    program = (*limited, sys.executable, "-m", "app.cli")
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with ExitStack() as stack:
            served = stack.enter_context(serving(*flags, program=program, log=log))
            port = served.port
            if through:
                port = stack.enter_context(behind(through, Path(folder), port))
            target = Target(port, served.process.pid, ATTACKER)
            _warm_up(target)
            observer = Observer(target)
            observer.start()
            neighbours = Neighbours(target)
            try:
                steps, seconds, finished = _attacked(attack, target, neighbours)
            finally:
                neighbours.stop()
                observer.stop()
            survived = served.process.poll() is None
    found = _verdict(attack, steps, observer, neighbours, finished, survived)
    return {"through": through, "front_ends": front_ends, "seconds": round(seconds, 1), **found}


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
    words += [str(target.port), str(target.pid), target.source]
    steps: list[Outcome | Finding] = []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def _verdict(
    attack: Attack,
    steps: Sequence[Outcome | Finding],
    observer: Observer,
    neighbours: Neighbours,
    finished: bool,
    survived: bool,
) -> dict[str, object]:
    """Return the figures of one attack, and under `broken` the promises that were not kept."""
    outcomes = [step for step in steps if isinstance(step, Outcome)]
    findings = [step for step in steps if isinstance(step, Finding)]
    errors = [o.body_bytes for o in outcomes if o.status is not None and o.status >= 400]
    largest = max([*errors, neighbours.largest_error], default=0)
    grown = (observer.peak_bytes - observer.idle_bytes) / _MB
    missed = NEIGHBOURS - neighbours.spared
    late = sum(o.end == "never" or o.seconds > attack.ends_within for o in outcomes)
    resets = sum(o.end == "reset" for o in outcomes)
    wrong = {o.status for o in outcomes if (o.status or 0) >= 500} - {503, 504}
    claims = (
        (survived, "the server ended"),
        (observer.livez_worst <= LIVEZ_WITHIN, f"/livez took {observer.livez_worst:.2f} s"),
        (not observer.livez_failed, f"/livez failed {observer.livez_failed} times"),
        (not missed, f"{missed} of {NEIGHBOURS} neighbours were not answered in time"),
        (grown <= LARGEST_GROWTH, f"memory grew by {grown:.0f} MB"),
        (largest <= LARGEST_ERROR, f"an error answer has {largest} bytes"),
        (finished, "the attack had to be stopped"),
        (not late, f"{late} requests of the attacker lasted over {attack.ends_within:g} s"),
        (attack.resets_allowed or not resets, f"{resets} answers could not be read (reset)"),
        (not wrong, f"the attacker was answered {wrong}"),
    )
    return {
        "attack": attack.name,
        "livez_worst_s": round(observer.livez_worst, 3),
        "neighbours": NEIGHBOURS,
        "neighbours_spared": neighbours.spared,
        "neighbours_refusals": neighbours.refused,
        "neighbours_slowest_s": round(neighbours.slowest, 2),
        "neighbours_errors": dict(sorted(neighbours.ends.items())),
        "attacker": dict(sorted(Counter(str(o.status or o.end) for o in outcomes).items())),
        "attacker_slowest_s": round(max((o.seconds for o in outcomes), default=0.0), 2),
        "largest_error_bytes": largest,
        "memory_idle_mb": round(observer.idle_bytes / _MB),
        "memory_over_idle_mb": round(grown),
        "cpu_s": round(observer.cpu, 1),
        "findings": {f.name: round(f.value, 3) for f in findings},
        "excerpt": next((o.excerpt for o in outcomes if o.excerpt), "")[:200],
        "broken": [
            *(text for kept, text in claims if not kept),
            *(f"{f.name} is {f.value:.3g}{_bounds(f)}" for f in findings if f.broken),
        ],
    }


def _bounds(finding: Finding) -> str:
    most = "" if finding.most is None else f", at most {finding.most:g} is promised"
    least = "" if finding.least is None else f", at least {finding.least:g} is promised"
    return most + least
