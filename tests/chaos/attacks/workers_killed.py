"""Kill the worker beside good clients, or stop it by a signal.

Old effect: no image was lost, but none was answered for 12 to 26 s while front ends went on
accepting; `/readyz` stayed 200 for 14.6 s. Promise:
answers come again within 12 s, `/readyz` is 503 within 2 s of a dead worker where none computes,
and no request is lost. A worker that a signal had stopped kept its images without end, and
`/readyz` stayed 200 for 15 s. Promise: it is replaced after 10 s, and the rest is the same.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.chaos.harness.processes import tree
from tests.pictures import jpeg

_READYZ = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def _workers(pid: int) -> list[int]:
    """Return the processes that compute: those whose last word is "worker", or begins so."""
    found = []
    for each in tree(pid):
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if words[-1].startswith(b"worker"):
            found.append(each)
    return found


class _Probe:
    """Asks for labels all the time, and notes when an answer came and when readiness changed."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.answers: list[float] = []
        self.failures = 0
        self.readiness: list[tuple[float, bool]] = []
        self.done = threading.Event()

    def classify(self) -> None:
        request = post("/classify", jpeg(3), "image/jpeg")
        while not self.done.is_set():
            status = ask(self.target, request, 60.0).status
            if status == 200:
                self.answers.append(time.monotonic())
            else:
                self.failures += status not in (503, 429)
            self.done.wait(0.05)

    def ready(self) -> None:
        while not self.done.is_set():
            found = ask(self.target, _READYZ, 30.0).status == 200
            self.readiness.append((time.monotonic(), found))
            self.done.wait(0.1)

    def longest_gap(self, since: float, until: float) -> float:
        times = [since, *(t for t in self.answers if since <= t <= until), until]
        return max(b - a for a, b in pairwise(times))


@contextmanager
def _probing(target: Target) -> Iterator[_Probe]:
    probe = _Probe(target)
    threads = [threading.Thread(target=each) for each in (probe.classify, probe.ready)]
    for each in threads:
        each.start()
    time.sleep(2.0)
    try:
        yield probe
    finally:
        probe.done.set()
        for each in threads:
            each.join()


def _killed(target: Target, by: signal.Signals, most: float, unready: float) -> Steps:
    with _probing(target) as probe:
        first = time.monotonic()
        for pid in _workers(target.pid):
            os.kill(pid, by)
        time.sleep(30)
        gap = probe.longest_gap(first, time.monotonic())
        refused = [t for t, ready in probe.readiness if t > first and not ready]
        again = [t for t, ready in probe.readiness if refused and t > refused[-1] and ready]
    yield Finding("seconds_without_answers", gap, most=most)
    yield Finding("requests_lost", probe.failures, most=0)
    if refused:
        yield Finding("readyz_503_after_s", refused[0] - first, most=unready)
        ready = again[0] if again else first + 30
        yield Finding("readyz_200_after_s", ready - first, most=most + 11.0)


def worker_killed(target: Target) -> Steps:
    """Kill the worker."""
    yield None
    yield from _killed(target, signal.SIGKILL, 12.0, 2.0)


def workers_stopped(target: Target) -> Steps:
    """Stop the worker by SIGSTOP."""
    yield None
    yield from _killed(target, signal.SIGSTOP, 24.0, 12.0)
