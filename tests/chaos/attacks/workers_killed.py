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
from concurrent.futures import ThreadPoolExecutor
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


def _killed(target: Target, by: signal.Signals, most: float, unready: float) -> Steps:
    """Ask for labels and readiness all the time, and send a signal to the workers meanwhile."""
    done = threading.Event()
    answers: list[float] = []
    lost: list[int | None] = []
    readiness: list[tuple[float, bool]] = []

    def classify() -> None:
        request = post("/classify", jpeg(3), "image/jpeg")
        while not done.wait(0.05):
            status = ask(target, request, 60.0).status
            if status == 200:
                answers.append(time.monotonic())
            elif status not in (503, 429):
                lost.append(status)

    def ready() -> None:
        while not done.wait(0.1):
            found = ask(target, _READYZ, 30.0).status == 200
            readiness.append((time.monotonic(), found))

    with ThreadPoolExecutor(2) as pool:
        pool.submit(classify)
        pool.submit(ready)
        time.sleep(2.0)
        first = time.monotonic()
        for pid in _workers(target.pid):
            os.kill(pid, by)
        time.sleep(30)
        times = [first, *(t for t in answers if t >= first), time.monotonic()]
        done.set()
    refused = [t for t, ready in readiness if t > first and not ready]
    again = [t for t, ready in readiness if refused and t > refused[-1] and ready]
    yield Finding("seconds_without_answers", max(b - a for a, b in pairwise(times)), most=most)
    yield Finding("requests_lost", len(lost), most=0)
    if refused:
        yield Finding("readyz_503_after_s", refused[0] - first, most=unready)
        after = again[0] if again else first + 30
        yield Finding("readyz_200_after_s", after - first, most=most + 11.0)


def worker_killed(target: Target) -> Steps:
    """Kill the worker."""
    yield None
    yield from _killed(target, signal.SIGKILL, 12.0, 2.0)


def workers_stopped(target: Target) -> Steps:
    """Stop the worker by SIGSTOP."""
    yield None
    yield from _killed(target, signal.SIGSTOP, 24.0, 12.0)
